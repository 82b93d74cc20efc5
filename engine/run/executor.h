// Runs one rank's part of a plan: local segments, then the ring, then the final merge. A rank
// without exchange works stretch by stretch (engine/run/stretches.h), whose rows are final while
// others still come. Step t computes on the blocks that arrived in step t while those of step t + 1
// travel; step 0 computes on own rows. Merges are float32 in the plan's order: the same shards and
// kernel give the same bits.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"

namespace hilbert_ring {

enum class SpanKind {
  kAttend,
  kReceiveBlocks,  // from posting to the end of the wait
  kWait,           // posting transfers, and waits without computing
  kMerge,          // adding zero keys and finalizing rows
};

struct ExecuteControl {
  // Called between tiles and before waits, by any thread: rows may set the deadline. Empty: none.
  std::function<Deadline()> deadline;
  // Called between tiles and before waits. Only an abort of the communicator ends a wait.
  std::function<bool()> cancelled;
  std::function<void(double fraction)> progress;  // of the rank's planned scores; any thread
  // Receives the exchange step (from 1) before the wait for its transfers, and 0 after.
  std::function<void(int64_t step)> waiting;
  // Waits for local rows [0, rows) of Q, K and V; an error ends the run. Empty: all have come.
  std::function<absl::Status(int64_t rows)> await_rows;
  std::function<void(int64_t rows)> rows_final;
  // A few spans for each stretch and exchange step (0: own rows), in the calling thread.
  std::function<void(SpanKind kind, int64_t step, Deadline begin, Deadline end)> span;
};

struct Figures {
  double flops = 0;             // in tiles that were not wholly masked
  double library_flops = 0;     // the part that a library computed (AttendFigures)
  std::string library_refusal;  // the first one of AttendFigures
  double compute_seconds = 0;
  double exchange_seconds = 0;          // from posting to arrival, summed over steps
  double exposed_exchange_seconds = 0;  // posting, and waits without computing
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  // Lists of the plan, shard, order, accumulators and exchange buffers, as allocated.
  int64_t memory_peak_bytes = 0;
};

// `communicator` may be null without exchange steps; its ranks are the plan's. first_step is above
// its earlier steps; the next job starts at first_step + plan.costs.steps + 1. Errors: CANCELLED,
// DEADLINE_EXCEEDED, the communicator's.
absl::StatusOr<Figures> Execute(const Plan& plan, int rank, ShardStore& store, Device& device,
                                Communicator* communicator, int64_t first_step,
                                const ExecuteControl& control);

}  // namespace hilbert_ring
