#include "server/job/worker_shard.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

namespace hilbert_ring::server {

JobMemory* WorkerShard::copies() const {
  return parts_.job.rows.InFiles() ? nullptr : &parts_.services.memory.copies;
}

absl::Status WorkerShard::Make() {
  const Plan& plan = parts_.plan;
  const Member& member = parts_.member(rank_);
  HeldRows& held = parts_.job.held;
  const bool offer = parts_.settings().share_memory && MayShareMemory(member.address);
  if (copies() == nullptr && !offer) return absl::OkStatus();
  absl::StatusOr<JobMemory::Reservation> copy = absl::UnavailableError("shared");
  if (!offer) copy = copies()->Reserve(ShardLayout(plan, rank_).bytes());
  if (!offer && !copy.ok() && held.empty()) return absl::OkStatus();
  auto shard = held.Carry(plan, rank_, member, parts_.grant.lane, parts_.services.memory.shards);
  if (!shard.ok()) {
    if (!held.empty()) return shard.status();
    spdlog::warn("job {}: {}", parts_.job.open.job_id(), std::string(shard.status().message()));
    return absl::OkStatus();
  }
  shard_ = *std::move(shard);
  shard_.copy.reset();
  if (offer) {
    const JobShape& shape = parts_.job.work.shape();
    arrived_.emplace(shard_.rows->rows(), shape.rows.inputs(),
                     shape.UnsentRows(plan.shards, rank_));
  } else if (copy.ok()) {
    shard_.copy = std::make_unique<JobMemory::Reservation>(*std::move(copy));
  }
  return absl::OkStatus();
}

absl::Status WorkerShard::Keep(TensorKind tensor, const RowRun& run, wire::PayloadReader& payload) {
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

void WorkerShard::BecomeCopy() {
  if (!held() || shard_.copy) return;
  if (copies() != nullptr) {
    auto copy = copies()->Reserve(shard_.memory->bytes());
    if (copy.ok()) {
      shard_.copy = std::make_unique<JobMemory::Reservation>(*std::move(copy));
      return;
    }
  }
  shard_ = HeldShard();
}

}  // namespace hilbert_ring::server
