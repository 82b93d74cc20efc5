// The phases of a run at a worker: what it waits for as a whole.
//
//   kOpening -> kReading -> kQueued -> kAllocating -> kReceiving -> kComputing -> kSending -> kDone
//
//   kReceiving, kComputing -a failure, a cancellation-> kStopping -compute returns-> kFailed
//   any other but the last two -a failure-> kFailed
//
// Compute begins in kReceiving, with the first rows. Final outputs leave from kReceiving on.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hilbert_ring::server {

enum class RunPhase {
  kOpening,     // RunOpen
  kReading,     // files and model, without the device
  kQueued,      // its lane
  kAllocating,  // memory, ring, shard
  kReceiving,   // all rows
  kComputing,   // the last result
  kSending,     // outputs and figures that leave
  kDone,        // the status follows
  kStopping,    // compute returns after a failure
  kFailed,      // the status follows
};
inline constexpr int kRunPhases = 10;

struct RunTransition {
  RunPhase before, after;
};

inline constexpr RunTransition kRunTransitions[] = {
    // The call's thread decides:
    {RunPhase::kOpening, RunPhase::kReading},
    {RunPhase::kReading, RunPhase::kQueued},
    {RunPhase::kQueued, RunPhase::kAllocating},
    {RunPhase::kAllocating, RunPhase::kReceiving},
    {RunPhase::kReceiving, RunPhase::kComputing},  // RowsDone
    {RunPhase::kOpening, RunPhase::kFailed},
    {RunPhase::kReading, RunPhase::kFailed},
    {RunPhase::kQueued, RunPhase::kFailed},
    {RunPhase::kAllocating, RunPhase::kFailed},
    // The executor decides:
    {RunPhase::kComputing, RunPhase::kSending},
    {RunPhase::kStopping, RunPhase::kFailed},
    // The sender decides:
    {RunPhase::kSending, RunPhase::kDone},    // figures have left
    {RunPhase::kSending, RunPhase::kFailed},  // an output could not leave
    // The first of the three that fails or sees a cancellation decides:
    {RunPhase::kReceiving, RunPhase::kStopping},
    {RunPhase::kComputing, RunPhase::kStopping},
};

constexpr bool MayFollow(RunPhase before, RunPhase after) {
  return std::ranges::any_of(kRunTransitions, [&](const RunTransition& transition) {
    return transition.before == before && transition.after == after;
  });
}

constexpr bool HasEnded(RunPhase phase) {
  return phase == RunPhase::kDone || phase == RunPhase::kFailed;
}

constexpr bool HasComputed(RunPhase phase) {
  return phase == RunPhase::kSending || HasEnded(phase);
}

constexpr RunPhase PhaseAfterFailure(RunPhase phase) {
  const bool computes = phase == RunPhase::kReceiving || phase == RunPhase::kComputing;
  return computes || phase == RunPhase::kStopping ? RunPhase::kStopping : RunPhase::kFailed;
}

enum class RunReply { kNothing, kProgress, kEnd, kFailure };

constexpr RunReply ReplyIn(RunPhase phase) {
  switch (phase) {
    case RunPhase::kReceiving:
    case RunPhase::kComputing:
      return RunReply::kProgress;
    case RunPhase::kSending:
      return RunReply::kEnd;
    case RunPhase::kStopping:
    case RunPhase::kFailed:
      return RunReply::kFailure;
    default:
      return RunReply::kNothing;
  }
}

// Threads of a run. Passing a short run on to other threads takes longer than its compute.
enum class RunMode {
  kThreads,     // executor and sender
  kCallThread,  // the call's thread alone
  kOneMessage,  // the call's thread, with one message out (RunWhole)
};

struct RunTraits {
  bool in_place = false;  // rows and outputs lie in shared memory
  bool exchanges = false;
  bool projects_tiles = false;
  bool rows_there = false;  // with RunOpen
  double flops = 0;
};

constexpr double kShortFlops = 5e8;  // some milliseconds of a CPU

// A short run does not exchange, send or wait once its rows are there.
constexpr RunMode ModeOf(const RunTraits& run) {
  const bool is_short =
      run.in_place && !run.exchanges && !run.projects_tiles && run.flops <= kShortFlops;
  if (!is_short) return RunMode::kThreads;
  return run.rows_there ? RunMode::kOneMessage : RunMode::kCallThread;
}

}  // namespace hilbert_ring::server
