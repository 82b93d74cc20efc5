// Rows of a failed execution in this process, with which the next one begins. Rows lie by slot, and
// all executions have one order: whole ranges are copied, and their old pages freed at once, so
// that memory holds rows once. The same worker on the same lane keeps its shard, because a lane
// ends one job before the next: its old writes are over. No other worker gets memory to which a
// worker may still write.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/plan/plan.h"
#include "engine/plan/shard_layout.h"
#include "server/cluster/membership.h"
#include "server/rows/shared_memory_pool.h"
#include "server/shard/job_memory.h"
#include "server/shard/row_set.h"

namespace hilbert_ring::server {

struct HeldShard {
  std::shared_ptr<SharedMemory> memory;  // outputs on their way share it
  std::optional<HostShard> rows;
  std::unique_ptr<JobMemory::Reservation> copy;  // if the worker has a shard of its own
};

class HeldRows {
 public:
  HeldRows() = default;  // before the first execution
  // lane: of the workers.
  HeldRows(const Plan& plan, Members members, std::vector<HeldShard> by_rank, int lane);

  bool empty() const { return by_rank_.empty(); }

  const LostRows& lost() const { return lost_; }  // of shards that were not held

  absl::StatusOr<HeldShard> Carry(const Plan& plan, int rank, const Member& member, int lane,
                                  SharedMemoryPool& pool);

 private:
  // Copies the tensor's rows of one range.
  absl::Status Copy(const Plan& plan, TensorKind tensor, const ShardRange& range, HeldShard& to);

  // The ranges of a tensor's rows in by_rank_.
  const Shards& ShardsOf(TensorKind tensor) const {
    return tensor == TensorKind::kQ ? queries_ : slots_;
  }

  Shards slots_, queries_;
  Members members_;                 // by rank
  std::vector<HeldShard> by_rank_;  // empty: no execution before
  int lane_ = 0;
  LostRows lost_;
};

}  // namespace hilbert_ring::server
