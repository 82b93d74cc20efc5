#include "tests/unit/job/job_rig.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/job/client_stream.h"
#include "server/job/served_job.h"
#include "server/process/version.h"

namespace hilbert_ring::testing {
namespace {

using server::Member;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kShortWaits{1};
const server::CoordinatorSettings kDefaults;

// Limits that a test does not set exceed all waits that a test lets pass.
server::CoordinatorSettings SettingsOf(JobRigOptions options) {
  server::CoordinatorSettings settings = std::move(options.settings);
  if (settings.job_workers == kDefaults.job_workers) settings.job_workers = options.workers;
  settings.worker_timeout = hours(1000);
  for (const auto setting :
       {&server::CoordinatorSettings::stall_timeout, &server::CoordinatorSettings::idle_timeout,
        &server::CoordinatorSettings::recovery_timeout, &server::CoordinatorSettings::job_timeout,
        &server::CoordinatorSettings::queue_timeout}) {
    if (settings.*setting == kDefaults.*setting) settings.*setting = hours(100);
  }
  if (settings.least_rate_bytes == kDefaults.least_rate_bytes) settings.least_rate_bytes = 0;
  return settings;
}

}  // namespace

class JobRig::Service
    : public v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service> {
 public:
  explicit Service(server::JobServices services) : services_(services) {}
  ~Service() override {
    for (std::thread& call : calls_) call.join();
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override {
    const auto stream =
        server::ClientStream::Make(context,
                                   {.idle = services_.limits.settings.idle_timeout,
                                    .bytes_per_second = services_.limits.settings.least_rate_bytes},
                                   services_.observers.time);
    stream->AwaitFirst([this, stream] {
      const std::lock_guard lock(mutex_);
      calls_.emplace_back([this, stream] { Serve(*stream); });
    });
    return stream.get();
  }

 private:
  void Serve(server::ClientStream& stream) {
    const auto report =
        server::ServedJob(services_, stream, {.name = "caller", .turns = "caller"}).Run();
    if (report.ok()) {
      stream.End(*report);
    } else {
      stream.End(report.status(), std::nullopt);
    }
    stream.AwaitDone(seconds(60));
  }

  const server::JobServices services_;
  std::mutex mutex_;
  std::vector<std::thread> calls_;  // guarded by mutex_
};

JobRig::JobRig(const JobRigOptions& options)
    : settings_(SettingsOf(options)),
      beat_(options.beat),
      jobs_(time_),
      orders_(1 << 20),
      models_(options.models),
      shards_(milliseconds(500)),
      copies_(settings_.copy_memory_bytes),
      order_memory_(1 << 20),
      plans_(2),
      scheduler_([this] { return membership_.Live(); }, settings_.max_queue, time_),
      membership_(settings_.worker_timeout,
                  {.joined = [this](const Member&) { scheduler_.Changed(); },
                   .left = [this](const Member&) { scheduler_.Changed(); },
                   .gone = [](const std::string&) {},
                   .closed = [this](const Member&) { scheduler_.Changed(); },
                   .failed =
                       [this](const Member& member) {
                         const std::lock_guard lock(failures_mutex_);
                         ++failures_[member.address];
                       },
                   .beat = [](const Member&, const v1::Heartbeat&) {},
                   .dial =
                       [this](const std::string& address) {
                         for (const auto& worker : workers_) {
                           if (worker->address() == address) return worker->Channel();
                         }
                         return std::shared_ptr<grpc::Channel>();
                       }},
                  time_),
      suspects_([this](const Member& member) { membership_.Quarantine(member); }) {
  for (int i = 0; i < options.workers; ++i) {
    // The address has no server.
    const std::string host = options.local ? "127.0.0.1" : "192.0.2.1";
    workers_.push_back(std::make_unique<FakeWorker>(absl::StrCat(host, ":", i + 1)));
  }
  members_.resize(options.workers);
  for (int i = 0; i < options.workers; ++i) Join(i);
  service_ = std::make_unique<Service>(services());
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  stub_ = v1::AttentionService::NewStub(server_->InProcessChannel({}));
}

JobRig::~JobRig() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
  service_.reset();
}

server::JobServices JobRig::services() {
  return {.cluster = {.membership = membership_,
                      .scheduler = scheduler_,
                      .rate = rate_,
                      .rings = rings_,
                      .runs = runs_,
                      .suspects = suspects_},
          .memory = {.orders = orders_,
                     .models = models_,
                     .shards = shards_,
                     .threads = threads_,
                     .copies = copies_,
                     .order_memory = order_memory_,
                     .data_root = nullptr},
          .limits = {.settings = settings_, .quotas = quotas_, .plans = plans_},
          .observers = {.jobs = jobs_, .metrics = metrics_, .time = time_}};
}

JobSpec JobRig::Spec(int64_t tokens) { return PlainSpec({.tokens = tokens, .segment = 1}); }

std::unique_ptr<FakeClient> JobRig::Open(const JobSpec& spec, FakeClientOptions options) {
  return std::make_unique<FakeClient>(*stub_, spec, std::move(options));
}

std::unique_ptr<FakeClient> JobRig::Send(const JobSpec& spec, FakeClientOptions options) {
  auto client = Open(spec, std::move(options));
  client->SendAll();
  return client;
}

absl::Status JobRig::Await(FakeClient& client) {
  Until([&] { return client.ended(); });
  return client.Await();
}

bool JobRig::Until(absl::FunctionRef<bool()> done) { return time_.RunUntil(done, kShortWaits); }

bool JobRig::AwaitPhase(server::JobPhase phase) {
  return Eventually([&] { return jobs_in(phase) > 0; });
}

bool JobRig::AwaitHeld() {
  return Eventually([&] { return log_.held(); });
}

int JobRig::jobs_in(server::JobPhase phase) const {
  return jobs_.CountByPhase()[static_cast<int>(phase)];
}

void JobRig::Leave(int index) { membership_.Leave(*members_[index]); }

void JobRig::Drain(int index) {
  v1::Heartbeat beat;
  beat.set_draining(true);
  EXPECT_TRUE(membership_.Beat(*members_[index], beat));
  Leave(index);
}

void JobRig::Join(int index) {
  v1::Heartbeat beat = beat_;
  beat.set_address(workers_[index]->address());
  beat.set_version(std::string(server::kVersion));
  if (beat.memory_limit_bytes() == 0) beat.set_memory_limit_bytes(int64_t{1} << 30);
  beat.set_transport("gloo");
  members_[index] = membership_.Register(beat).value();
  membership_.Reached(*members_[index]);
}

void JobRig::TellFailure(int index, uint64_t run, const absl::Status& status,
                         const std::string& reason) {
  v1::RunFailure failure;
  failure.set_run(run);
  failure.mutable_failed()->set_code(static_cast<int>(status.code()));
  failure.mutable_failed()->set_message(std::string(status.message()));
  failure.mutable_failed()->set_reason(reason);
  runs_.Report(workers_[index]->address(), failure);
}

v1::ClusterWorker JobRig::Describe(int index) {
  for (v1::ClusterWorker& worker : membership_.Describe()) {
    if (worker.address() == workers_[index]->address()) return std::move(worker);
  }
  return {};
}

bool JobRig::backs_off(int index) const {
  return members_[index]->backs_off_until.load() > server::Clock::duration(0);
}

int JobRig::failures(int index) const {
  const std::lock_guard lock(failures_mutex_);
  const auto found = failures_.find(workers_[index]->address());
  return found == failures_.end() ? 0 : found->second;
}

}  // namespace hilbert_ring::testing
