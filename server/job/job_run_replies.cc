// What the workers of a run answer: readiness, progress, figures, and how they fail. Outputs are
// job_run_outputs.cc's.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/cluster/worker_figures.h"
#include "server/job/job_run.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(200);
constexpr auto kCulpritLimit = std::chrono::milliseconds(300);
constexpr auto kStallCheckInterval = std::chrono::milliseconds(250);

// Statuses of the transport carry no details.
bool SaidByWorker(const grpc::Status& status) { return !status.error_details().empty(); }

bool MeansLoss(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kUnauthenticated;  // it has registered anew meanwhile
}

}  // namespace

absl::Status JobRun::Await(Deadline deadline, const char* what, bool Stream::*state,
                           bool watch_progress) {
  std::unique_lock lock(mutex_);
  const auto missing = [&] {
    return std::find_if(streams_.begin(), streams_.end(),
                        [&](const auto& stream) { return !((*stream).*state); });
  };
  watch_.Begin(Clock::now());
  // Of one that has not done it: the first whose time is over.
  const auto late = [&] {
    const Clock::time_point now = Clock::now();
    int rank = 0;
    while (rank < static_cast<int>(streams_.size()) &&
           ((*streams_[rank]).*state || now - watch_.PassedOn(rank, now) < deadline)) {
      ++rank;
    }
    return rank;
  };
  while (stop_.why().ok() && missing() != streams_.end()) {
    const Deadline until = watch_progress ? Clock::now() + kStallCheckInterval : deadline;
    changed_.wait_until(lock, stop_.token(), until, [&] { return missing() == streams_.end(); });
    absl::Status failed;
    if (missing() == streams_.end() || !stop_.why().ok()) continue;
    if (const int rank = late(); rank < static_cast<int>(streams_.size())) {
      if (watch_progress) {
        failed = wire::ErrorOf(wire::reason::kJobTimeout,
                               absl::StrCat("worker ", options_.members[rank]->address, " ", what));
      } else {
        stalled_ = options_.members[rank];
        failed = Lost(rank, what);
      }
    } else if (watch_progress) {
      failed = FindStalled(state);
    }
    lock.unlock();
    if (!failed.ok()) stop_.Request(failed);
    lock.lock();
  }
  return stop_.why();
}

// Under mutex_.
absl::Status JobRun::FindStalled(bool Stream::*state) {
  std::vector<bool> awaited;
  for (const auto& stream : streams_) awaited.push_back(!((*stream).*state));
  const auto stall = watch_.Find(awaited, Clock::now());
  if (!stall) return absl::OkStatus();
  if (stall->waiting_step == 0) stalled_ = options_.members[stall->rank];
  return Lost(stall->rank,
              absl::StrCat("no worker of the job made progress for ",
                           options_.stall_timeout.count(), " ms, and this one ",
                           stall->waiting_step == 0
                               ? "waits for nobody"
                               : absl::StrCat("waits in exchange step ", stall->waiting_step)));
}

std::shared_ptr<const Member> JobRun::stalled() const {
  const std::lock_guard lock(mutex_);
  return stalled_;
}

std::shared_ptr<const Member> JobRun::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

// What the transport says of a stream that nobody cancelled.
void JobRun::NoteBroken(int rank, const grpc::Status& status) {
  const auto& member = options_.members[rank];
  if (status.ok() || SaidByWorker(status) || !stop_.why().ok() ||
      member->departed.stop_requested()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (failed_ == nullptr) failed_ = member;
}

void JobRun::ReadFrom(int rank) {
  Stream& stream = *streams_[rank];
  v1::RunResponse response;
  absl::Status status;
  while (status.ok() && stream.call->Read(&response)) status = Handle(rank, response);
  if (!status.ok()) {
    stop_.Request(status);
    stream.context.TryCancel();
  }
  const grpc::Status ended = stream.call->Finish();
  bool complete = false;
  {
    const std::lock_guard lock(mutex_);
    complete = ended.ok() && stream.report.has_value();
  }
  if (!complete) NoteFailed(rank, ended);
  EndPasser(rank);
  const std::lock_guard lock(mutex_);
  stream.ended = true;
  changed_.notify_all();
}

void JobRun::NoteFailed(int rank, const grpc::Status& status) {
  AwaitCulprit(status);
  NoteBroken(rank, status);
  if (wire::HasReason(wire::FromGrpc(status), wire::reason::kWorkerBusy)) {
    const std::lock_guard lock(mutex_);
    stalled_ = options_.members[rank];  // it does not get rid of a job that we know nothing of
  }
  stop_.Request(Explain(rank, status));
}

absl::Status JobRun::Handle(int rank, v1::RunResponse& response) {
  Stream& stream = *streams_[rank];
  switch (response.message_case()) {
    case v1::RunResponse::kReady:
      return HandleReady(rank, response.ready());
    case v1::RunResponse::kProgress:
      TellProgress(rank, response.progress());
      return absl::OkStatus();
    case v1::RunResponse::kOutput:
      return PassOn(rank, *response.mutable_output(), response.first_slot());
    case v1::RunResponse::kFinal:
      return PassOnShared(rank, response.final().rows());
    case v1::RunResponse::kComputed:
      NoteComputed(rank, response.computed().seconds());
      return absl::OkStatus();
    case v1::RunResponse::kFailed:
      HandleFailed(rank, response.failed());
      return stop_.why();
    case v1::RunResponse::kFigures: {
      const std::lock_guard lock(mutex_);
      stream.report = std::move(*response.mutable_figures());
      stream.report->set_worker(options_.members[rank]->address);
      return absl::OkStatus();
    }
    case v1::RunResponse::MESSAGE_NOT_SET:
      break;
  }
  return absl::InternalError(
      absl::StrCat("worker ", options_.members[rank]->address, " sent an empty message"));
}

void JobRun::HandleFailed(int rank, const v1::RunFailed& failed) {
  NoteFailed(
      rank, wire::ToGrpc(wire::WithReason(
                absl::Status(absl::StatusCode(failed.code()), failed.message()), failed.reason())));
}

// Beside the stream.
void JobRun::HandleFailed(const std::string& worker, const v1::RunFailed& failed) {
  for (int rank = 0; rank < static_cast<int>(options_.members.size()); ++rank) {
    if (options_.members[rank]->address == worker) HandleFailed(rank, failed);
  }
}

absl::Status JobRun::HandleReady(int rank, const v1::RunReady& ready) {
  Stream& stream = *streams_[rank];
  if (!ready.shares_memory()) stream.outputs.reset();
  const std::lock_guard lock(mutex_);
  stream.shares = ready.shares_memory();
  stream.ready = true;
  changed_.notify_all();
  return absl::OkStatus();
}

void JobRun::NoteComputed(int rank, double seconds) {
  const std::lock_guard lock(mutex_);
  Stream& stream = *streams_[rank];
  if (stream.computed) return;
  stream.computed = true;
  // A worker cannot have computed for longer than we have waited for it.
  if (seconds > 0 && finished_ != Clock::time_point()) {
    stream.compute_seconds = std::min(seconds, SecondsBetween(finished_, Clock::now()));
  }
  changed_.notify_all();
}

void JobRun::TellProgress(int rank, const v1::RunProgress& progress) {
  if (IsAbsurd(progress)) {
    if (options_.absurd_progress) options_.absurd_progress();
    return;
  }
  double mean = 0;
  {
    const std::lock_guard lock(mutex_);
    streams_[rank]->fraction = progress.fraction();
    const Clock::time_point now = Clock::now();
    watch_.Waits(rank, progress.waiting_step(), now);
    if (now - told_ < kProgressInterval) return;
    told_ = now;
    for (const auto& stream : streams_) mean += stream->fraction;
    mean /= static_cast<double>(streams_.size());
  }
  options_.progress(mean);
}

absl::Status JobRun::Lost(int rank, const std::string& how) const {
  return wire::ErrorOf(
      wire::reason::kWorkerLost,
      absl::StrCat("worker ", options_.members[rank]->address, " was lost: ", how));
}

// A worker whose peer died says so before we hear of the death itself: give that a moment, so that
// the right one is named.
void JobRun::AwaitCulprit(const grpc::Status& status) {
  if (!SaidByWorker(status) || !MeansLoss(wire::FromGrpc(status).code())) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop_.token(), kCulpritLimit, [] { return false; });
}

// What a worker's status is to the client. The end of its connection, or what it says of a peer
// that died, is a lost worker; what it found wrong is passed on.
absl::Status JobRun::Explain(int rank, const grpc::Status& status) const {
  if (status.ok()) return Lost(rank, "its stream ended without figures");
  const absl::Status error = wire::FromGrpc(status);
  // The transport's word for a worker that has no thread for the call.
  const bool full = absl::IsResourceExhausted(error);
  if (!SaidByWorker(status) && !full) return Lost(rank, std::string(error.message()));
  const std::string message =
      absl::StrCat("worker ", options_.members[rank]->address, ": ", error.message());
  if (MeansLoss(error.code())) {
    return wire::ErrorOf(wire::reason::kWorkerLost, message);
  }
  if (absl::IsDataLoss(error)) {
    return wire::ErrorOf(wire::reason::kWorkerDataLoss, message);
  }
  return wire::WithReason(absl::Status(error.code(), message), wire::ReasonOf(error));
}

std::vector<HostShard> JobRun::Shards() const {
  std::vector<HostShard> shards;
  for (const auto& stream : streams_) {
    if (!stream->shard.rows) return {};
    shards.push_back(*stream->shard.rows);
  }
  return shards;
}

std::vector<v1::WorkerReport> JobRun::Reports() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::WorkerReport> reports;
  for (const auto& stream : streams_) {
    reports.push_back(stream->report.value_or(v1::WorkerReport()));
  }
  return reports;
}

double JobRun::compute_seconds() const {
  const std::lock_guard lock(mutex_);
  double longest = 0;
  for (const auto& stream : streams_) longest = std::max(longest, stream->compute_seconds);
  return longest;
}

}  // namespace hilbert_ring::server
