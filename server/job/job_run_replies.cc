// The workers' replies: progress, outputs, and failures.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/peer_error.h"
#include "server/job/job_run.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(200);
constexpr auto kCulpritLimit = std::chrono::milliseconds(300);
constexpr auto kStallCheckInterval = std::chrono::milliseconds(250);
// Between two looks at the job's clock, which may be a test's.
constexpr auto kPollInterval = std::chrono::milliseconds(250);

}  // namespace

void JobRun::Changed() {
  const MutexLock lock(mutex_);
  changed_.notify_all();
}

bool JobRun::AllDid(const Awaited& awaited) const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [&](const auto& stream) { return stream->replies().*awaited.done; });
}

absl::Status JobRun::Await(const Awaited& awaited, Deadline deadline) {
  const TimeSource& time = parts_.time();
  MutexLock lock(mutex_);
  watch_.Begin(time.Now());
  const auto all = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return AllDid(awaited); };
  while (stop_.why().ok() && !all()) {
    const Clock::time_point now = time.Now();
    const bool looks = awaited.computing || now >= deadline;
    const Deadline until = looks ? now + kStallCheckInterval : deadline;
    bool did = false;
    if (polls_ && !streams_.front()->replies().ended) {
      lock.unlock();
      did = Poll(awaited, until);
      lock.lock();
    } else {
      did = time.WaitUntil(changed_, lock, stop_.token(), until, all);
    }
    if (did || !stop_.why().ok()) break;
    std::optional<Found> found = FindLate(awaited, deadline);
    if (!found && awaited.computing) found = FindStalled(awaited);
    lock.unlock();
    if (found) Fail(found->kind, found->rank, found->status);
    lock.lock();
  }
  return stop_.why();
}

bool JobRun::Poll(const Awaited& awaited, Deadline until) {
  WorkerStream& stream = *streams_.front();
  while (!(stream.replies().*awaited.done)) {
    const Clock::time_point now = Now();
    if (!stop_.why().ok() || now >= until || stream.replies().ended) return false;
    stream.Poll(std::chrono::system_clock::now() +
                std::min<Clock::duration>(until - now, kPollInterval));
  }
  return true;
}

std::optional<JobRun::Found> JobRun::FindLate(const Awaited& awaited, Deadline deadline) {
  const Clock::time_point now = Now();
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (streams_[rank]->replies().*awaited.done ||
        now - watch_.ForwardedFor(rank, now) < deadline) {
      continue;
    }
    if (!awaited.computing) {
      return Found{FailureKind::kStall, rank, LostWorker(address(rank), awaited.late)};
    }
    return Found{FailureKind::kOther, rank,
                 wire::ErrorOf(wire::reason::kJobTimeout,
                               absl::StrCat("worker ", address(rank), " ", awaited.late))};
  }
  return std::nullopt;
}

std::optional<JobRun::Found> JobRun::FindStalled(const Awaited& awaited) {
  std::vector<bool> missing;
  for (const auto& stream : streams_) missing.push_back(!(stream->replies().*awaited.done));
  const auto stall = watch_.Find(missing, Now());
  if (!stall) return std::nullopt;
  const bool waits = stall->waiting_step > 0;
  if (waits) reports_.push_back({.by = members()[stall->rank], .of = nullptr});
  return Found{
      waits ? FailureKind::kRing : FailureKind::kStall, stall->rank,
      LostWorker(address(stall->rank),
                 absl::StrCat("no worker of the job made progress for ",
                              parts_.settings().stall_timeout.count(), " ms, and this one ",
                              waits ? absl::StrCat("waits in exchange step ", stall->waiting_step)
                                    : "waits for no peer"))};
}

void JobRun::Progressed(int rank, const v1::RunProgress& progress) {
  double fraction = 0;
  int64_t layer = 0;
  {
    const MutexLock lock(mutex_);
    const Clock::time_point now = Now();
    const WorkerReplies replies = streams_[rank]->replies();
    watch_.Progressed(rank, progress, replies.read && !replies.computed, now);
    if (now - told_ < kProgressInterval) return;
    told_ = now;
    fraction = watch_.fraction();
    layer = watch_.layer();
  }
  parts_.job.course.Advance(JobPhase::kComputing, fraction);
  if (!parts_.job.admitted) return;  // its worker answers soon
  v1::AttendResponse response;
  response.mutable_progress()->set_phase(v1::Progress::PHASE_COMPUTE);
  response.mutable_progress()->set_fraction(fraction);
  response.mutable_progress()->set_layer(layer);
  parts_.client.Offer(response);
}

void JobRun::Forwarding(int rank, bool forwarding) {
  const MutexLock lock(mutex_);
  watch_.Forwarding(rank, forwarding, Now());
}

absl::StatusOr<bool> JobRun::Output(int rank, const v1::OutputChunk& chunk,
                                    std::string_view payload,
                                    const std::shared_ptr<const void>& owner, int64_t first_slot,
                                    Clock::duration patience) {
  JobRecord& job = parts_.job;
  const Clock::time_point begun = sent_ ? Now() : Clock::time_point();
  absl::StatusOr<bool> handed =
      job.rows.Take(chunk, payload, owner, patience, stop_, parts_.send_mode);
  if (!handed.ok() || !*handed) return handed;
  if (sent_) sent_->Add(rank, begun, Now());
  job.bytes_sent += static_cast<int64_t>(payload.size());
  if (job.check) job.check->Take(chunk, payload, members()[rank]);
  parts_.services.observers.metrics.AddSent(static_cast<int64_t>(payload.size()));
  if (chunk.tensor() == v1::TENSOR_OUT || chunk.tensor() == v1::TENSOR_STATES) {
    job.NoteSent(chunk.rows());
  }
  RowSet& slots = job.delivered.of(*wire::TensorKindOf(chunk.tensor()));
  const MutexLock lock(mutex_);
  slots.Add(first_slot, first_slot + chunk.rows());
  return true;
}

// A worker that has left needs no exclusion.
void JobRun::Fail(FailureKind kind, int rank, const absl::Status& status) {
  const auto& member = members()[rank];
  if (member->departed.stop_requested()) kind = FailureKind::kOther;
  {
    const MutexLock lock(mutex_);
    if (stop_.why().ok() && failure_.status.ok()) {
      failure_ = {.kind = kind, .status = status, .worker = member};
    }
  }
  stop_.Request(status);
}

void JobRun::NoteReport(int rank, const absl::Status& error) {
  if (!stop_.why().ok()) return;  // the end of the others' runs causes it
  const auto peer = PeerOf(error);
  const bool there = peer && *peer != rank && *peer < std::ssize(members());
  const MutexLock lock(mutex_);
  reports_.push_back({.by = members()[rank], .of = there ? members()[*peer] : nullptr});
}

void JobRun::Failed(int rank, const grpc::Status& status) {
  const absl::Status failure = FailureOf(address(rank), status);
  const FailureKind kind =
      KindOf(status, streams_[rank]->ComputingFor(Now()), parts_.settings().job_timeout);
  if (kind != FailureKind::kRing) return Fail(kind, rank, failure);
  if (members().size() == 1) return Fail(FailureKind::kWorker, rank, failure);
  const absl::Status error = wire::FromGrpc(status);
  const auto peer = PeerOf(error);
  if (absl::IsDataLoss(error) && peer && *peer < std::ssize(members())) {
    return Fail(FailureKind::kWorker, *peer, failure);  // the sender of corrupt blocks
  }
  NoteReport(rank, error);
  // A peer's report may come before its worker's death is noticed: waits a moment for the culprit.
  parts_.time().AwaitStop(stop_.token(), Now() + kCulpritLimit);
  Fail(kind, rank, failure);
}

void JobRun::FailedBeside(const std::string& worker, const v1::RunFailed& failed) {
  for (int rank = 0; rank < static_cast<int>(members().size()); ++rank) {
    if (address(rank) == worker) Failed(rank, StatusOf(failed));
  }
}

absl::Status JobRun::CheckAllOut() {
  if (const auto bytes = parts_.job.rows.BytesByWorkers()) return CheckWritten(*bytes);
  MutexLock lock(mutex_);
  for (const TensorKind tensor : kOutputKinds) {
    if (!parts_.plan.rows.Has(tensor)) continue;
    if (tensor == TensorKind::kLse && !parts_.job.open.want_lse()) continue;
    const RowSet& slots = parts_.job.delivered.of(tensor);
    if (slots.count() == slots.size()) continue;
    const RowSpan gap = slots.GapFrom(0);
    const int64_t rows = slots.size(), missing = rows - slots.count();
    const int rank = parts_.plan.ShardsOf(tensor).Find(gap.begin).rank;
    lock.unlock();
    Fail(FailureKind::kWorker, rank,
         absl::InternalError(absl::StrCat("worker ", address(rank), " ended without all rows of ",
                                          wire::TensorName(wire::TensorOf(tensor)),
                                          " that it has: ", missing, " of ", rows,
                                          " are missing, from slot ", gap.begin, " on")));
    return stop_.why();
  }
  return absl::OkStatus();
}

absl::Status JobRun::CheckWritten(int64_t bytes) {
  int64_t written = 0;
  for (const v1::WorkerReport& report : Reports()) written += report.file_bytes_written();
  if (written == bytes) return absl::OkStatus();
  absl::Status wrong = absl::InternalError(
      absl::StrCat("the workers wrote ", written, " bytes of outputs, expected ", bytes));
  // Among several workers the culprit is unknown.
  if (members().size() == 1) Fail(FailureKind::kWorker, 0, wrong);
  return wrong;
}

// Called with news of workers: the job's thread itself blocks in a write until the worker takes the
// rows.
void JobRun::LookAtWrites() {
  if (!stop_.why().ok()) return;
  const Clock::time_point now = Now();
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (streams_[rank]->WritingFor(now) < parts_.settings().stall_timeout) continue;
    Fail(FailureKind::kStall, rank,
         LostWorker(address(rank), absl::StrCat("took no rows for ",
                                                parts_.settings().stall_timeout.count(), " ms")));
  }
}

Failure JobRun::failure() const {
  const MutexLock lock(mutex_);
  Failure failure = failure_;
  failure.status = stop_.why();
  if (failure.kind != FailureKind::kRing) return failure;
  const auto left = [](const auto& worker) {
    return worker != nullptr && worker->departed.stop_requested();
  };
  for (const PeerReport& report : reports_) {
    if (!left(report.by) && !left(report.of)) failure.reports.push_back(report);
  }
  return failure;
}

}  // namespace hilbert_ring::server
