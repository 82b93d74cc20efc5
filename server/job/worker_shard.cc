#include "server/job/worker_shard.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

namespace hilbert_ring::server {

absl::Status WorkerShard::Make() {
  const Plan& plan = *options_.plan;
  const Member& member = *options_.members[rank_];
  const bool offer = options_.share_memory && MayShareMemory(member.address);
  if (options_.copies == nullptr && !offer) return absl::OkStatus();
  absl::StatusOr<JobMemory::Reservation> copy = absl::UnavailableError("shared");
  if (!offer) copy = options_.copies->Reserve(ShardLayout(plan, rank_).bytes());
  if (!offer && !copy.ok() && options_.held->empty()) return absl::OkStatus();
  auto shard = options_.held->Carry(plan, rank_, member, options_.lane, *options_.shards);
  if (!shard.ok()) {
    if (!options_.held->empty()) return shard.status();
    spdlog::warn("job {}: {}", options_.job_id, std::string(shard.status().message()));
    return absl::OkStatus();
  }
  shard_ = *std::move(shard);
  shard_.copy.reset();
  if (offer) {
    const JobShape& shape = options_.work->shape();
    arrived_.emplace(shard_.rows->rows(), shape.rows.inputs(),
                     shape.UnsentRows(plan.shards, rank_));
  } else if (copy.ok()) {
    shard_.copy = std::make_unique<JobMemory::Reservation>(*std::move(copy));
  }
  return absl::OkStatus();
}

absl::Status WorkerShard::Keep(TensorKind tensor, const RowRun& run, wire::PayloadReader& payload) {
  const int64_t bytes = run.rows * options_.plan->rows[tensor];
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
  if (options_.copies != nullptr) {
    auto copy = options_.copies->Reserve(shard_.memory->bytes());
    if (copy.ok()) {
      shard_.copy = std::make_unique<JobMemory::Reservation>(*std::move(copy));
      return;
    }
  }
  shard_ = HeldShard();
}

}  // namespace hilbert_ring::server
