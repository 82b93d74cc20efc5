#include "server/many/served_many.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/served_job.h"
#include "server/many/packed_client.h"
#include "server/process/logging.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr int kAtOnce = 4;              // messages
constexpr int64_t kNotedFailures = 16;  // a job that is refused is a few bytes, its line hundreds
constexpr int64_t kRead = 4;            // messages that are there and wait
constexpr auto kAgain = std::chrono::milliseconds(5);  // where others were faster
// Each message, the outputs of its jobs, and what they leave in.
constexpr int64_t kHeldBytes = kAtOnce * (wire::kMaxMessageBytes + 2 * wire::kMaxPayloadBytes) +
                               kRead * wire::kMaxMessageBytes;

// No job's doing: jobs that were tried alone would find the same, each after its own wait.
bool IsOverload(const absl::Status& status) {
  return wire::HasReason(status, wire::reason::kQuota) ||
         wire::HasReason(status, wire::reason::kQueueFull) ||
         wire::HasReason(status, wire::reason::kQueueTimeout) ||
         wire::HasReason(status, wire::reason::kNoThreads);
}

// What may be a single job's doing, of those that were computed together.
bool MayBeOne(const absl::Status& status) {
  if (IsOverload(status)) return false;
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
         absl::IsFailedPrecondition(status) || absl::IsDataLoss(status) ||
         absl::IsResourceExhausted(status);
}

bool LostRows(const absl::Status& status) {
  return wire::HasReason(status, wire::reason::kRowsLost) ||
         wire::HasReason(status, wire::reason::kWorkerLost);
}

}  // namespace

struct ServedMany::Message {
  v1::AttendManyRequest request;
  Caller caller;  // as it was when this came
  int64_t first_job = 0;
};

ServedMany::ServedMany(const JobServices& services, StreamMemory& memory, ClientStream& client,
                       Caller caller, std::string traceparent)
    : services_(services),
      memory_(memory),
      client_(client),
      caller_(std::move(caller)),
      traceparent_(std::move(traceparent)),
      opened_(services.time.Now()) {}

int64_t ServedMany::held_bytes() const { return kHeldBytes; }

absl::Status ServedMany::Run() {
  absl::Status status = ReadAll();
  if (!status.ok()) client_.stop().Request(status);
  Await(0);
  if (status.ok()) status = client_.AwaitTaken(client_.stop());
  if (absl::Status why = client_.stop().why(); !status.ok() && !why.ok()) status = why;
  NoteEnd(status);
  held_.reset();
  return status;
}

absl::Status ServedMany::ReadAll() {
  grpc::ByteBuffer bytes;
  while (true) {
    Await(kAtOnce - 1);
    if (!held_) RETURN_IF_ERROR(AwaitJob());
    ASSIGN_OR_RETURN(const bool more, client_.ReadBytes(bytes, client_.stop()));
    if (!more) return absl::OkStatus();
    auto message = std::make_unique<Message>();
    if (!wire::ParseBounded(bytes, message->request)) {
      return wire::ErrorOf(wire::reason::kInvalidOpen, "a message is not an AttendManyRequest");
    }
    if (const int jobs = message->request.jobs_size(); jobs > wire::kMostSmallJobs) {
      return wire::ErrorOf(
          wire::reason::kInvalidOpen,
          absl::StrCat("a message has ", jobs, " jobs, the limit is ", wire::kMostSmallJobs));
    }
    bytes.Clear();
    if (message->request.jobs().empty()) {
      if (!held_) client_.ReadOne();
      continue;
    }
    message->caller = caller_;
    if (caller_.quota_now) {
      ASSIGN_OR_RETURN(message->caller.quota, caller_.quota_now());
    }
    if (!held_) RETURN_IF_ERROR(ReserveMemory());
    message->first_job = jobs_;
    jobs_ += message->request.jobs_size();
    RETURN_IF_ERROR(Begin(std::move(message)));
  }
}

// A call without a job has said nothing yet.
absl::Status ServedMany::AwaitJob() {
  const std::chrono::milliseconds timeout = services_.settings.open_timeout;
  const Deadline due = opened_ + timeout;
  if (services_.time.Now() < due && client_.AwaitMessage(due)) return absl::OkStatus();
  RETURN_IF_ERROR(client_.stop().why());
  return wire::ErrorOf(
      wire::reason::kClientIdle,
      absl::StrCat("the first job did not come within ", timeout.count(), " ms (--open-timeout)"));
}

absl::Status ServedMany::ReserveMemory() {
  auto held = memory_.Reserve(caller_, kHeldBytes, "a call of many jobs");
  RETURN_IF_ERROR(held.status());
  held_.emplace(*std::move(held));
  client_.ReadAhead();
  return absl::OkStatus();
}

absl::Status ServedMany::Begin(std::unique_ptr<Message> message) {
  {
    const MutexLock lock(mutex_);
    ++running_;
  }
  const auto task = services_.threads.Start([this, message = std::shared_ptr(std::move(message))] {
    Serve(*message);
    const MutexLock lock(mutex_);
    --running_;
    changed_.notify_all();
  });
  if (task.ok()) return absl::OkStatus();
  const MutexLock lock(mutex_);
  --running_;
  return task.status();
}

void ServedMany::Await(int running) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [this, running]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ <= running; });
}

void ServedMany::Serve(const Message& message) {
  for (const PackedJobs& jobs : Pack(message.request, message.first_job)) {
    if (!client_.stop().why().ok()) return;
    ServePack(jobs, message.caller);
  }
}

// Where the jobs fail together, each is tried alone, so that one fails for itself.
void ServedMany::ServePack(const PackedJobs& jobs, const Caller& caller) {
  v1::AttendManyResponse response;
  const auto report = RunPack(jobs, caller, response);
  if (!client_.stop().why().ok()) return;
  if (!report.ok() && jobs.size() > 1 && MayBeOne(report.status())) {
    for (int64_t i = 0; i < jobs.size(); ++i)
      ServePack(PackedJobs(jobs.job(i), jobs.number(i)), caller);
    return;
  }
  for (int64_t i = 0; !report.ok() && i < jobs.size(); ++i) {
    v1::SmallResult& result = *response.add_results();
    result.set_job(jobs.number(i));
    result.set_error(wire::ToGrpc(report.status()).error_details());
  }
  Send(response, report.ok() ? 0 : jobs.size());
}

absl::Status ServedMany::CheckOutputs(const PackedJobs& jobs) const {
  RETURN_IF_ERROR(jobs.Check());
  if (jobs.output_bytes() <= wire::kMaxPayloadBytes) return absl::OkStatus();
  return wire::ErrorOf(
      wire::reason::kInvalidOpen,
      absl::StrCat("outputs of the job take ", jobs.output_bytes(), " bytes, a call of many jobs ",
                   "sends at most ", wire::kMaxPayloadBytes, " of each: call Attend"));
}

absl::StatusOr<v1::Report> ServedMany::RunPack(const PackedJobs& jobs, const Caller& caller,
                                               v1::AttendManyResponse& response) {
  RETURN_IF_ERROR(CheckOutputs(jobs));
  const Deadline due = services_.time.Now() + services_.settings.queue_timeout;
  for (int lost = 0;;) {
    // Where as many jobs wait as may, until the time that one may wait is over.
    RETURN_IF_ERROR(services_.scheduler.AwaitRoom(caller.turns, client_.stop(), due));
    const int64_t seen = services_.quotas.changes();
    JobStop stop;
    const std::stop_callback ended(client_.stop().token(),
                                   [&] { stop.Request(client_.stop().why()); });
    PackedClient client(jobs, stop);
    ServedJob job(services_, client, caller, traceparent_);
    if (ManyFailed()) job.FailQuietly();
    auto report = job.Run();
    if (report.ok()) {
      for (int64_t i = 0; i < jobs.size(); ++i) {
        v1::SmallResult& result = *response.add_results();
        result.set_job(jobs.number(i));
        result.set_packed(static_cast<int32_t>(jobs.size()));
        *result.mutable_report() = *report;
        result.mutable_report()->set_tokens(jobs.tokens(i));
        client.AddOutputs(i, result);
      }
      const MutexLock lock(mutex_);
      ++packs_;
      return report;
    }
    const bool in_time = services_.time.Now() < due;
    if (in_time && wire::HasReason(report.status(), wire::reason::kQuota)) {
      // The caller's jobs, others of this call among them, take its quota: until one of them ends.
      RETURN_IF_ERROR(services_.quotas.AwaitChange(caller, seen, client_.stop(), due));
      continue;
    }
    const bool full = in_time && wire::HasReason(report.status(), wire::reason::kQueueFull);
    if (!full && !(LostRows(report.status()) && lost++ < services_.settings.max_retries)) {
      return report;
    }
    services_.time.AwaitStop(client_.stop().token(), services_.time.Now() + kAgain);
  }
}

bool ServedMany::ManyFailed() const {
  const MutexLock lock(mutex_);
  return failed_ >= kNotedFailures;
}

// In messages of a size that the client takes.
void ServedMany::Send(const v1::AttendManyResponse& response, int64_t failed) {
  v1::AttendManyResponse message;
  size_t bytes = 0;
  absl::Status status;
  const auto leave = [&] {
    if (!status.ok() || message.results().empty()) return;
    status = client_.WriteBytes(wire::Serialize(message), client_.stop(), JobClient::Leaves::kNow);
    message.clear_results();
    bytes = 0;
  };
  for (const v1::SmallResult& result : response.results()) {
    if (bytes + result.ByteSizeLong() > wire::kMaxPayloadBytes) leave();
    bytes += result.ByteSizeLong();
    *message.add_results() = result;
  }
  leave();
  const MutexLock lock(mutex_);
  failed_ += failed;
}

void ServedMany::NoteEnd(const absl::Status& status) const {
  const MutexLock lock(mutex_);
  std::vector<LogField> fields = {{"code", absl::StatusCodeToString(status.code())},
                                  {"caller", caller_.name},
                                  {"jobs", jobs_},
                                  {"failed", failed_},
                                  {"computed_in", packs_},
                                  {"seconds", SecondsBetween(opened_, services_.time.Now())},
                                  {"traceparent", traceparent_}};
  if (!status.ok()) {
    fields.insert(fields.end(),
                  {{"reason", wire::ReasonOf(status)}, {"error", std::string(status.message())}});
  }
  LogEvent(status.ok() ? spdlog::level::info : spdlog::level::warn, "call of many jobs ended",
           fields);
}

}  // namespace hilbert_ring::server
