// Streams, order and rows of a run; job_run_replies.cc has the workers' replies.
#include "server/job/job_run.h"

#include <algorithm>
#include <utility>

#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kForLong = std::chrono::hours(24 * 365);

std::vector<int64_t> ReceivedBytes(const Plan& plan) {
  std::vector<int64_t> bytes;
  for (const WorkerCost& worker : plan.costs.workers) bytes.push_back(worker.bytes_received);
  return bytes;
}

}  // namespace

JobRun::JobRun(const RunParts& parts, JobStop& stop)
    : parts_(parts),
      stop_(stop),
      opened_(Now()),
      watch_(parts.settings().stall_timeout, ReceivedBytes(parts.plan),
             parts.job.rows.BytesByWorkers()) {
  if (parts.job.open.want_trace())
    sent_.emplace(static_cast<int>(members().size()), parts.job.course.opened());
}

JobRun::~JobRun() { CancelAndJoin(); }

void JobRun::CancelAndJoin() {
  for (const auto& stream : streams_) stream->CancelUnlessEnded();
  for (const auto& stream : streams_) stream->Join();
}

HeldRows JobRun::End() {
  CancelAndJoin();
  std::vector<HeldShard> shards;
  for (const auto& stream : streams_) shards.push_back(stream->Release());
  return HeldRows(parts_.plan, members(), std::move(shards), parts_.grant.lane);
}

void JobRun::Make() {
  for (int rank = 0; rank < static_cast<int>(members().size()); ++rank) {
    streams_.push_back(std::make_unique<WorkerStream>(parts_, rank, *this, stop_));
  }
  place_ = parts_.services.cluster.runs.Enter(
      {.failed = [this](const std::string& worker,
                        const v1::RunFailed& failed) { FailedBeside(worker, failed); },
       .look = [this] { LookAtWrites(); }});
  for (const auto& stream : streams_) {
    if (absl::Status status = stream->Make(); !status.ok()) {
      stop_.Request(status);
      return;
    }
  }
}

void JobRun::Open() {
  // A copy: a worker may send outputs before the next stream is open.
  const Delivered delivered = parts_.job.delivered;
  for (const auto& stream : streams_) {
    if (!stop_.why().ok()) return;
    stream->Open(place_->number(), delivered);
  }
}

bool JobRun::MayOpenWithRows() const { return streams_.size() == 1 && streams_.front()->offered(); }

void JobRun::OpenWithRows() {
  polls_ = true;
  streams_.front()->OpenWithRows(place_->number());
}

bool JobRun::AnswersWithin(std::chrono::milliseconds limit) {
  streams_.front()->Poll(std::chrono::system_clock::now() + limit);
  return streams_.front()->replies().computed;
}

absl::Status JobRun::AwaitReady(Deadline deadline) {
  RETURN_IF_ERROR(Await(
      {.done = &WorkerReplies::ready, .late = "was not ready for the job in time"}, deadline));
  for (const auto& stream : streams_) stream->Settle();
  return absl::OkStatus();
}

absl::Status JobRun::SendAgain(const RowRouter& router, const JobInput& input) {
  for (const auto& stream : streams_) {
    if (stream->turned_down()) RETURN_IF_ERROR(stream->SendOrder(router));
  }
  return SendHeldRows(&WorkerStream::turned_down, router, input);
}

absl::Status JobRun::SendOrder(const RowRouter& router) {
  for (const auto& stream : streams_) RETURN_IF_ERROR(stream->SendOrder(router));
  return absl::OkStatus();
}

absl::Status JobRun::SendHeld(const RowRouter& router, const JobInput& input) {
  RETURN_IF_ERROR(SendHeldRows(&WorkerStream::held, router, input));
  for (const auto& stream : streams_) RETURN_IF_ERROR(stream->SendArrived());
  return absl::OkStatus();
}

// Notes rows in shared shards, and sends rows of the others.
absl::Status JobRun::SendHeldRows(bool (WorkerStream::*chosen)() const, const RowRouter& router,
                                  const JobInput& input) {
  const auto is_chosen = [chosen](const auto& stream) { return (*stream.*chosen)(); };
  if (std::ranges::none_of(streams_, is_chosen)) return absl::OkStatus();
  for (const TensorKind kind : kInputKinds) {
    const int64_t row_bytes = parts_.plan.rows[kind];
    if (row_bytes == 0) continue;
    const v1::Tensor tensor = wire::TensorOf(kind);
    const int64_t piece = std::max<int64_t>(1, wire::kMaxPayloadBytes / row_bytes);
    const auto pass_on = [&](const std::vector<RowRun>& runs) {
      if (absl::Status why = stop_.why(); !why.ok()) return why;
      std::map<int, RowMessages> messages;
      for (const RowRun& run : runs) {
        if (!is_chosen(streams_[run.rank])) continue;
        WorkerStream& stream = *streams_[run.rank];
        if (!stream.takes_messages()) {
          stream.NoteArrived(run);
          continue;
        }
        const std::byte* const row = stream.rows().Row(kind, run.local_row);
        const wire::Payload rows(
            {reinterpret_cast<const char*>(row), static_cast<size_t>(run.rows * row_bytes)});
        wire::PayloadReader reader(rows);
        messages.try_emplace(run.rank, tensor, row_bytes, stream.pool())
            .first->second.Add(run, reader);
      }
      return WriteRows(messages);
    };
    RETURN_IF_ERROR(VisitPlaces(router, tensor, input.Rows(tensor), piece, pass_on));
  }
  for (const auto& stream : streams_) {
    if (is_chosen(stream) && stream->takes_messages()) stream->BecomeCopy();
  }
  return absl::OkStatus();
}

absl::Status JobRun::WriteRows(std::map<int, RowMessages>& by_rank) {
  for (auto& [rank, messages] : by_rank) {
    for (const grpc::ByteBuffer& rows : messages.Take()) {
      RETURN_IF_ERROR(streams_[rank]->Write(rows));
    }
  }
  return absl::OkStatus();
}

absl::Status JobRun::Send(const v1::Chunk& chunk, const wire::Payload& payload,
                          const RowRouter& router) {
  const TensorKind kind = *wire::TensorKindOf(chunk.tensor());
  const int64_t row_bytes = parts_.plan.rows[kind];
  const std::vector<RowRun> runs = router.Runs(chunk.tensor(), chunk.first_row(), chunk.rows());
  std::map<int, RowMessages> messages;
  for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
    if (streams_[rank]->takes_messages()) {
      messages.try_emplace(rank, chunk.tensor(), row_bytes, streams_[rank]->pool());
    }
  }
  // First all that is held, so that it survives this execution.
  wire::PayloadReader held(payload);
  wire::PayloadReader sent(payload);
  for (const RowRun& run : runs) {
    RETURN_IF_ERROR(streams_[run.rank]->Keep(kind, run, held));
    const auto to_worker = messages.find(run.rank);
    if (to_worker != messages.end()) {
      to_worker->second.Add(run, sent);
    } else {
      sent.Skip(run.rows * row_bytes);
    }
  }
  RETURN_IF_ERROR(WriteRows(messages));
  for (const auto& stream : streams_) RETURN_IF_ERROR(stream->SendArrived());
  // A worker without rows of its own for a while must know that the job is fed.
  const Clock::time_point now = Now();
  for (const auto& stream : streams_) RETURN_IF_ERROR(stream->SendKeepalive(now));
  return absl::OkStatus();
}

absl::Status JobRun::FinishRows() {
  for (const auto& stream : streams_) RETURN_IF_ERROR(stream->FinishRows());
  return absl::OkStatus();
}

absl::Status JobRun::AwaitComputed(Deadline deadline) {
  return Await({.done = &WorkerReplies::computed,
                .late = "did not end its part of the job in time",
                .computing = true},
               deadline);
}

absl::Status JobRun::AwaitRead() {
  return Await(
      {.done = &WorkerReplies::read, .late = "did not read all its rows", .computing = true},
      Now() + kForLong);
}

absl::Status JobRun::AwaitEnd() {
  {
    const MutexLock lock(mutex_);
    for (int rank = 0; rank < static_cast<int>(streams_.size()); ++rank) {
      watch_.Waits(rank, 0, Now());
    }
  }
  RETURN_IF_ERROR(Await(
      {.done = &WorkerReplies::ended, .late = "did not send all its output", .computing = true},
      Now() + kForLong));
  RETURN_IF_ERROR(CheckAllOut());
  // Only now: a worker may write to its shard until its job ends.
  for (const auto& stream : streams_) {
    if (stream->held()) parts_.services.memory.shards.Keep(stream->memory());
  }
  return absl::OkStatus();
}

std::vector<HostShard> JobRun::Shards() const {
  std::vector<HostShard> shards;
  for (const auto& stream : streams_) {
    if (!stream->held()) return {};
    shards.push_back(stream->rows());
  }
  return shards;
}

std::vector<v1::WorkerReport> JobRun::Reports() const {
  std::vector<v1::WorkerReport> reports;
  for (const auto& stream : streams_) reports.push_back(stream->report());
  if (sent_) sent_->AddTo(reports, opened_);
  return reports;
}

double JobRun::compute_seconds() const {
  double longest = 0;
  for (const auto& stream : streams_)
    longest = std::max(longest, stream->replies().compute_seconds);
  return longest;
}

}  // namespace hilbert_ring::server
