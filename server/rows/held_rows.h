// Rows of a job that this process has, from an execution that ended: what the next one begins with.
//
//   HeldRows held(plan.shards, members, std::move(shards), lane);   // an execution ended
//   held.lost();                                               // slots that are not here
//   ...                                                        // the next execution's plan
//   HeldShard shard = held.Carry(plan, rank, member, lane, pool).value();
//
// Rows lie by slot, and all executions have one order, so whole ranges are copied; what has been
// copied is given back to the system at once, so that the rows are there once, not twice. A shard
// that a worker had, and that the same worker has again on the same lane, stays where it is: a lane
// takes one job at a time, so what it still wrote for the old execution it wrote before the new
// one. No other worker gets memory that somebody may still write to.
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

// One worker's shard in memory of this process; both are empty where it is not held.
struct HeldShard {
  std::shared_ptr<SharedMemory> memory;  // shared with outputs on their way to the client
  std::optional<HostShard> rows;
  // Of a shard that its worker has for itself.
  std::unique_ptr<JobMemory::Reservation> copy;
};

class HeldRows {
 public:
  HeldRows() = default;  // of a job that has not begun: nothing is lost
  // lane: of the workers, that it ran on.
  HeldRows(Shards shards, Members members, std::vector<HeldShard> by_rank, int lane);

  // The job was not executed before.
  bool empty() const { return by_rank_.empty(); }

  // Slots of shards that were not held.
  const std::vector<RowSpan>& lost() const { return lost_; }

  // A shard for a rank of the next execution with all rows of it that are held. Errors as of
  // SharedMemory's.
  absl::StatusOr<HeldShard> Carry(const Plan& plan, int rank, const Member& member, int lane,
                                  SharedMemoryPool& pool);

 private:
  absl::Status Copy(const Plan& plan, const ShardRange& range, HeldShard& to);

  Shards shards_;
  Members members_;                 // by rank
  std::vector<HeldShard> by_rank_;  // empty: the job was not executed before
  int lane_ = 0;
  std::vector<RowSpan> lost_;
};

}  // namespace hilbert_ring::server
