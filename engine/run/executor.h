// Runs one rank's part of a plan: local segments, then the ring, then what the merge leaves to do.
//
// A rank that exchanges nothing works stretch by stretch (engine/run/stretches.h): a stretch is
// computed as soon as its rows are there, and its rows are final when it is done, while others
// still come.
//
// Step 0 computes on the rank's own rows while its packed blocks travel; step t computes on the
// blocks that arrived in step t while those of step t + 1 travel. Partial
// results are merged in float32 in the plan's order, so the same shards and kernel give the same
// bits.
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
  kReceiveBlocks,  // from posting to when they were found to be there
  kWait,           // posting transfers, and waiting for them with nothing to compute
  kMerge,          // zero keys, and partial results made final
};

struct ExecuteControl {
  // Asked between tiles and before it waits for transfers, by any thread, for it may be known only
  // when all rows are there; without it there is none.
  std::function<Deadline()> deadline;
  // Asked between tiles and before it waits for transfers. A wait ends when the communicator is
  // aborted.
  std::function<bool()> cancelled;
  std::function<void(double fraction)> progress;  // of the rank's planned scores; any thread
  // Told of the exchange step, from 1, whose transfers it waits for, and with 0 when they are
  // there.
  std::function<void(int64_t step)> waiting;
  // Waits until local rows [0, rows) of Q, K and V are there; without it all are. Errors end the
  // run.
  std::function<absl::Status(int64_t rows)> await_rows;
  // Told that local rows [0, rows) of OUT and LSE are final.
  std::function<void(int64_t rows)> rows_final;
  // Told what went on from when to when, by the calling thread: a few times for each stretch and
  // each exchange step. step: 0 for the rank's own rows.
  std::function<void(SpanKind kind, int64_t step, Deadline begin, Deadline end)> span;
};

// Measured figures of one rank.
struct Figures {
  double flops = 0;             // in tiles that were not wholly masked
  double library_flops = 0;     // of those, by a library's attention (AttendFigures)
  std::string library_refusal;  // as in AttendFigures, the first
  double compute_seconds = 0;
  double exchange_seconds = 0;          // from posting to arrival, summed over steps
  double exposed_exchange_seconds = 0;  // of those, posting, and waiting with nothing to compute
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t memory_peak_bytes = 0;  // shard, order, accumulators and exchange buffers as allocated
};

// `communicator` may be null for a plan without exchange steps. Ranks of the communicator are the
// plan's. Steps are numbered from first_step, which must be above all earlier steps of the
// communicator; the next job on it starts at first_step + plan.costs.steps + 1. CANCELLED,
// DEADLINE_EXCEEDED, and the communicator's errors.
absl::StatusOr<Figures> Execute(const Plan& plan, int rank, ShardStore& store, Device& device,
                                Communicator* communicator, int64_t first_step,
                                const ExecuteControl& control);

}  // namespace hilbert_ring
