// The shard of a WorkerStream.
#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "server/job/worker_stream.h"

namespace hilbert_ring::server {

std::unique_ptr<JobMemory::Reservation> WorkerStream::ReserveCopy(int64_t bytes) const {
  if (parts_.job.rows.InFiles()) return nullptr;
  auto copy = parts_.services.memory.copies.Reserve(bytes);
  return copy.ok() ? std::make_unique<JobMemory::Reservation>(*std::move(copy)) : nullptr;
}

absl::Status WorkerStream::MakeShard() {
  const Plan& plan = parts_.plan;
  HeldRows& held = parts_.job.held;
  // Rows of files come faster to the worker's own memory, which has huge pages. A check reads them.
  const bool read_here = !parts_.job.rows.InFiles() || parts_.job.check != nullptr;
  const bool offer =
      read_here && parts_.settings().share_memory && MayShareMemory(member().address);
  std::unique_ptr<JobMemory::Reservation> copy;
  if (!offer) copy = ReserveCopy(ShardLayout(plan, rank_).bytes());
  if (!offer && copy == nullptr && held.empty()) return absl::OkStatus();
  auto shard = held.Carry(plan, rank_, member(), parts_.grant.lane, parts_.services.memory.shards);
  if (!shard.ok()) {
    if (!held.empty()) return shard.status();
    spdlog::warn("job {}: {}", parts_.job.open.job_id(), std::string(shard.status().message()));
    return absl::OkStatus();
  }
  shard_ = *std::move(shard);
  shard_.copy = std::move(copy);
  if (offer) {
    const JobShape& shape = parts_.job.work.shape();
    arrived_.emplace(shard_.rows->layout().input_rows(), shape.UnsentRows(plan.shards, rank_));
  }
  return absl::OkStatus();
}

absl::Status WorkerStream::Keep(TensorKind tensor, const RowRun& run,
                                wire::PayloadReader& payload) {
  const int64_t bytes = run.rows * parts_.plan.rows[tensor];
  if (!held()) {
    payload.Skip(bytes);
    return absl::OkStatus();
  }
  absl::Status status =
      shard_.memory->Write(shard_.rows->Row(tensor, run.local_row), payload, bytes);
  if (status.ok() && offered()) NoteArrived(run);
  return status;
}

void WorkerStream::BecomeCopy() {
  if (!held() || shard_.copy) return;
  shard_.copy = ReserveCopy(shard_.memory->bytes());
  if (shard_.copy == nullptr) shard_ = HeldShard();
}

}  // namespace hilbert_ring::server
