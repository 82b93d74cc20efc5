#include "server/coordinator/warm_up.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/coordinator/attention_service.h"
#include "server/process/time_source.h"
#include "server/schedule/job_sizes.h"
#include "server/schedule/planner.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Enough for each worker to have rows, and each to need those of the others.
constexpr int64_t kTokensOfAWorker = 32;
constexpr int64_t kHeads = 2, kHeadDim = 16;
constexpr int64_t kCopyBytes = int64_t{64} << 20;  // more than any such job has
constexpr auto kTimeout = std::chrono::seconds(60);
// For workers that rest, which are to be tried too: they do for a minute at most.
constexpr auto kRestLimit = std::chrono::seconds(65);
// After one that failed: twice as long each time that the reason is the same.
constexpr std::chrono::milliseconds kPause(500), kLongestPause(8000);
constexpr std::chrono::milliseconds kLook(200);  // at who is there, while it waits for its turn

JobSpec SpecFor(int workers) {
  JobSpec spec;
  spec.tokens = kTokensOfAWorker * workers;
  spec.heads = spec.kv_heads = kHeads;
  spec.head_dim = spec.value_dim = kHeadDim;
  spec.dtype = DataType::kFloat32;
  spec.branches = {{.segment = spec.tokens, .dilation = 1}};
  spec.mixing = Mixing::kLse;
  return spec;
}

bool Has(const Members& workers, const std::shared_ptr<const Member>& worker) {
  return std::ranges::find(workers, worker) != workers.end();
}

// Too long for an express lane: the job has the workers' own. All of them if they are free now,
// else as many as are. Of very many not each number is tried.
std::vector<JobSize> SizesFrom(int workers, int least) {
  std::vector<JobSize> sizes;
  for (int without = 0; workers - without > least; without = std::max(1, 2 * without)) {
    sizes.push_back({.workers = workers - without, .seconds = 1});
  }
  sizes.push_back({.workers = least, .seconds = 1});
  return sizes;
}

// Else others had its workers, or somebody ended it.
bool IsOfItsWorkers(const absl::Status& status) {
  constexpr std::array kOthers = {
      wire::reason::kQueueFull.name,       wire::reason::kQueueTimeout.name,
      wire::reason::kDraining.name,        wire::reason::kJobRunning.name,
      wire::reason::kClientCancelled.name, wire::reason::kCancelledByCaller.name};
  return std::ranges::find(kOthers, wire::ReasonOf(status)) == kOthers.end();
}

int RowsToCheck(const JobSpec& spec) {
  constexpr int64_t kMost = 256;
  return static_cast<int>(std::min(spec.tokens, kMost));
}

v1::AttendRequest RowsOf(const JobSpec& spec, v1::Tensor tensor, std::minstd_rand& random) {
  std::vector<float> values(spec.tokens * wire::TensorRowBytes(spec, tensor) / sizeof(float));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : values) value = uniform(random);
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  chunk.set_tensor(tensor);
  chunk.set_rows(spec.tokens);
  chunk.set_payload(values.data(), values.size() * sizeof(float));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  return request;
}

// Outputs are dropped: the service has computed them again by the time of its report.
absl::Status Call(v1::AttentionService::Stub& stub, const JobSpec& spec, int workers,
                  const std::string& job_id, grpc::ClientContext& context) {
  const auto stream = stub.Attend(&context);
  v1::AttendRequest open;
  *open.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  open.mutable_open()->set_job_id(job_id);
  stream->Write(open);  // a failure shows in Finish
  std::minstd_rand random;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    stream->Write(RowsOf(spec, tensor, random));
  }
  stream->WritesDone();
  v1::AttendResponse response;
  v1::Report report;
  while (stream->Read(&response)) {
    if (response.has_report()) report = std::move(*response.mutable_report());
  }
  if (absl::Status status = wire::FromGrpc(stream->Finish()); !status.ok()) return status;
  if (report.workers_size() != workers) {
    return absl::UnavailableError(
        absl::StrCat("it could be computed on ", report.workers_size(), " of them alone"));
  }
  if (report.rows_checked() != RowsToCheck(spec)) {
    return absl::InternalError("too few of its rows could be checked");
  }
  return absl::OkStatus();
}

}  // namespace

struct WarmUp::Server {
  Server(const JobServices& services, Callers& callers)
      : calls(services, callers), service(services, callers, calls, plans, [] { return false; }) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
  }
  ~Server() {
    if (server == nullptr) return;
    server->Shutdown();
    server->Wait();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  PlanGate plans{1};
  JobCalls calls;
  AttentionService service;
  std::unique_ptr<grpc::Server> server;
};

WarmUp::WarmUp(const JobServices& services, std::function<void()> passed)
    : settings_(services.settings),
      copies_(kCopyBytes),
      shared_scheduler_(services.scheduler),
      scheduler_([this] { return Chosen(); }, 1),
      services_{.settings = settings_,
                .membership = services.membership,
                .scheduler = scheduler_,
                .rate = services.rate,
                .jobs = jobs_,
                .quotas = quotas_,
                .rings = services.rings,
                .runs = services.runs,
                .orders = services.orders,
                .models = services.models,
                .shards = services.shards,
                .threads = services.threads,
                .copies = copies_,
                .order_memory = services.order_memory,
                .plans = services.plans,
                .metrics = metrics_,
                .suspects = services.suspects,
                .model_steps = services.model_steps,
                .data_steps = services.data_steps,
                .data_root = no_root_},
      passed_(std::move(passed)),
      trial_([this] { return services_.membership.Live(); },
             [this](const WarmUpTrial::Probe& probe, const std::stop_token& stop) {
               return RunOn(probe, stop);
             }) {
  settings_.max_retries = 0;  // on other workers
  // Limits are for callers.
  settings_.max_tokens = kTokensOfAWorker * kMaxWorkers;
  settings_.max_heads = kHeads;
  server_ = std::make_unique<Server>(services_, callers_);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

WarmUp::~WarmUp() = default;

void WarmUp::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  server_.reset();
}

Members WarmUp::Chosen() const {
  const MutexLock lock(chosen_mutex_);
  return chosen_;
}

void WarmUp::Choose(Members workers) {
  const MutexLock lock(chosen_mutex_);
  chosen_.swap(workers);
}

void WarmUp::Begin(int needed) {
  const MutexLock lock(mutex_);
  needed_ = needed;
  ++begun_;
  changed_.notify_all();
}

void WarmUp::Run(const std::stop_token& stop) {
  std::string told;
  std::chrono::milliseconds pause = kPause;
  while (true) {
    size_t needed = 0;
    int64_t begun = 0;
    {
      MutexLock lock(mutex_);
      if (!changed_.wait(lock, stop,
                         [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return needed_ > 0; })) {
        return;
      }
      needed = static_cast<size_t>(needed_);
      begun = begun_;
    }
    const auto news = [this, begun]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return begun_ != begun; };
    if (services_.membership.Live().size() < needed) {  // Begin comes again once there are enough
      MutexLock lock(mutex_);
      changed_.wait(lock, stop, news);
      if (stop.stop_requested()) return;
      continue;
    }
    const absl::Status status = trial_.Try(needed, stop);
    if (stop.stop_requested()) return;
    if (status.ok()) {
      trial_.RestFailed();
      server_.reset();
      return passed_();
    }
    const std::string why(status.message());
    pause = std::min(2 * pause, kLongestPause);
    if (std::exchange(told, why) != why) {
      pause = kPause;
      spdlog::warn("the warm-up job over {} workers failed, and is tried again: {}", trial_.tried(),
                   why);
    }
    MutexLock lock(mutex_);
    changed_.wait_for(lock, stop, pause, news);
  }
}

absl::Status WarmUp::CheckThere(const Members& workers, size_t least) const {
  const Members live = services_.membership.Live();
  size_t there = 0;
  std::string gone;
  for (const auto& worker : workers) {
    if (Has(live, worker)) {
      ++there;
    } else {
      gone = worker->address;
    }
  }
  if (there >= least) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("worker ", gone, " takes no more jobs"));
}

// Of some of the workers; over all of them the job says it itself.
absl::Status WarmUp::CheckMemory(const JobSpec& spec, const Members& workers) const {
  if (workers.size() == services_.membership.Live().size()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Plan plan, PlannerOf(spec)(static_cast<int>(workers.size())));
  const JobSize size = SizeOf(plan, services_.rate.flops_per_second());
  for (const auto& worker : workers) {
    if (size.BytesOn(*worker) <= worker->memory_limit_bytes) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the job needs ", size.BytesOn(*worker), " bytes on worker ", worker->address,
                     ", its memory limit is ", worker->memory_limit_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Members> WarmUp::AwaitTurn(Scheduler::Place& place, const WarmUpTrial::Probe& probe,
                                          const std::stop_token& stop) const {
  JobStop job_stop;
  const std::stop_callback cancel(
      stop, [&job_stop] { job_stop.Request(absl::CancelledError("the service is stopping")); });
  Deadline told = Clock::now() + kTimeout;
  while (true) {
    RETURN_IF_ERROR(CheckThere(probe.workers, probe.least));
    auto grant = place.Await(job_stop, Clock::now() + kLook, [](int) {});
    if (grant.ok()) return std::move(grant->members);
    if (!wire::HasReason(grant.status(), wire::reason::kQueueTimeout)) return grant.status();
    if (probe.give_up()) return absl::UnavailableError("its workers have jobs of callers");
    if (Clock::now() < told) continue;
    told += kTimeout;
    spdlog::warn("the warm-up job waits until {} of {} workers have no jobs of callers",
                 probe.least, probe.workers.size());
  }
}

absl::Status WarmUp::AwaitRested(const WarmUpTrial::Probe& probe,
                                 const std::stop_token& stop) const {
  const auto rests = [](const auto& worker) {
    return worker->rests_until.load() > Clock::now().time_since_epoch();
  };
  const Deadline limit = Clock::now() + kRestLimit;
  while (!stop.stop_requested() && std::ranges::any_of(probe.workers, rests) &&
         Clock::now() < limit) {
    RETURN_IF_ERROR(CheckThere(probe.workers, probe.least));
    SystemTime().AwaitStop(stop, Clock::now() + kLook);
  }
  return absl::OkStatus();
}

WarmUpTrial::Outcome WarmUp::RunOn(const WarmUpTrial::Probe& probe, const std::stop_token& stop) {
  if (server_->server == nullptr) {
    return {.status = absl::UnavailableError("its server could not be started")};
  }
  // One that outlasts its call reads what the next one would change.
  if (!server_->calls.AwaitIdle(kLook)) {
    return {.status = absl::UnavailableError("the one before has not ended")};
  }
  if (absl::Status status = AwaitRested(probe, stop); !status.ok()) return {.status = status};
  auto place = shared_scheduler_.Enter(
      {.caller = "warm-up",
       .sizes = SizesFrom(static_cast<int>(probe.workers.size()), static_cast<int>(probe.least)),
       .takes = [&probe](const Member& member) {
         return std::ranges::any_of(
             probe.workers, [&member](const auto& worker) { return worker.get() == &member; });
       }});
  if (!place.ok()) return {.status = place.status()};
  // In the order of ranks that later jobs have, too, so that they find their ring there.
  auto workers = AwaitTurn(*place, probe, stop);
  if (!workers.ok()) return {.status = workers.status()};
  absl::Status status = RunNow(*workers, stop);
  const bool theirs =
      status.ok() || (IsOfItsWorkers(status) && CheckThere(*workers, workers->size()).ok());
  return {.status = std::move(status), .workers = theirs ? *std::move(workers) : Members()};
}

absl::Status WarmUp::RunNow(const Members& workers, const std::stop_token& stop) {
  const auto count = static_cast<int>(workers.size());
  const JobSpec spec = SpecFor(count);
  RETURN_IF_ERROR(CheckMemory(spec, workers));
  Choose(workers);
  settings_.job_workers = count;
  settings_.check_rows = RowsToCheck(spec);
  const auto stub = v1::AttentionService::NewStub(server_->server->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  absl::Status status = Call(*stub, spec, count, absl::StrCat("warm-up-", ++jobs_begun_), context);
  if (server_->calls.AwaitIdle(kTimeout)) Choose({});
  return status;
}

}  // namespace hilbert_ring::server
