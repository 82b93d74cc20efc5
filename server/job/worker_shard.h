// A worker's shard as this process has it: in memory that both share, as a copy of the rows that
// are sent, or not at all.
//
//   WorkerShard shard(options, rank);
//   shard.Make();                      // with the rows that the execution before this one left
//   shard.Keep(kind, run, payload);    // rows of a chunk, written to their places
//   shard.prefix();                    // how far the rows have come
//   HeldShard held = shard.Release();  // for the next execution
//
// Used by the job's thread alone. Make comes before the worker hears of the memory, and a shard
// that is offered stays until the worker has turned it down: a worker's outputs may be read from
// rows() by another thread meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "engine/plan/shard_layout.h"
#include "server/job/job_run_options.h"
#include "server/rows/held_rows.h"
#include "server/rows/row_router.h"
#include "server/shard/arrived_rows.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class WorkerShard {
 public:
  // options outlive it.
  WorkerShard(const JobRunOptions& options, int rank) : options_(options), rank_(rank) {}

  // Where memory cannot be had, rows are sent and not held; but rows that are held already must not
  // be lost that way: then an error, as of HeldRows::Carry.
  absl::Status Make();

  bool held() const { return shard_.rows.has_value(); }

  // To the worker, to be its shard.
  bool offered() const { return arrived_.has_value(); }

  // Of a shard that is held.
  const HostShard& rows() const { return *shard_.rows; }
  const std::shared_ptr<SharedMemory>& memory() const { return shard_.memory; }

  // Takes the run's rows from the payload, also where they are not held.
  absl::Status Keep(TensorKind tensor, const RowRun& run, wire::PayloadReader& payload);

  // Rows of an offered shard are there.
  void NoteArrived(const RowRun& run) { arrived_->Add(run.local_row, run.rows); }

  // Rows of an offered shard that have come, from the first on.
  int64_t prefix() const { return arrived_->prefix(); }

  // The worker has a shard of its own: this one stays as a copy if there is memory for that.
  void BecomeCopy();

  HeldShard Release() { return std::move(shard_); }

 private:
  const JobRunOptions& options_;
  const int rank_;
  HeldShard shard_;
  std::optional<ArrivedRows> arrived_;
};

}  // namespace hilbert_ring::server
