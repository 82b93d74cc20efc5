// A worker's shard in this process: in memory that both share, a copy of the rows, or not held.
// Only the job's thread uses it. An offered shard stays until the worker turns it down, because
// another thread may read outputs from rows().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "engine/plan/shard_layout.h"
#include "server/job/job_record.h"
#include "server/rows/held_rows.h"
#include "server/rows/row_router.h"
#include "server/shard/arrived_rows.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class WorkerShard {
 public:
  // The parts outlive it.
  WorkerShard(const RunParts& parts, int rank) : parts_(parts), rank_(rank) {}

  // Without memory rows are sent and not held; but if that lost held rows it is an error, as of
  // HeldRows::Carry.
  absl::Status Make();

  bool held() const { return shard_.rows.has_value(); }

  bool offered() const { return arrived_.has_value(); }  // offered to the worker as its shard

  const HostShard& rows() const { return *shard_.rows; }  // if held
  const std::shared_ptr<SharedMemory>& memory() const { return shard_.memory; }

  // Takes the run's rows from the payload, also if not held.
  absl::Status Keep(TensorKind tensor, const RowRun& run, wire::PayloadReader& payload);

  void NoteArrived(const RowRun& run) { arrived_->Add(run.local_row, run.rows); }

  // Rows that have come, from the first on, of an offered shard.
  int64_t prefix() const { return arrived_->prefix(); }

  void BecomeCopy();  // the worker has its own shard: keeps this one as a copy if there is memory

  HeldShard Release() { return std::move(shard_); }

 private:
  JobMemory* copies() const;  // null: no copies

  const RunParts& parts_;
  const int rank_;
  HeldShard shard_;
  std::optional<ArrivedRows> arrived_;
};

}  // namespace hilbert_ring::server
