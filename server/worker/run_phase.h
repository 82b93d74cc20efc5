// The course of a run at a worker, as code: its phases, what may follow which, and who decides.
//
//   kOpening -> kReading -> kQueued -> kAllocating -> kReceiving -> kComputing -> kSending -> kDone
//
//   kReceiving, kComputing -a failure, a cancellation-> kStopping -compute returns-> kFailed
//   any other but the last two -a failure-> kFailed
//
// A phase says what the run as a whole waits for. Compute begins in kReceiving, with the first rows
// that are there, and outputs leave in all phases from kReceiving on, as they become final.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hilbert_ring::server {

enum class RunPhase {
  kOpening,     // for RunOpen
  kReading,     // files are opened and a model is read, without the device
  kQueued,      // for its lane
  kAllocating,  // memory, ring, shard
  kReceiving,   // until all rows are there
  kComputing,   // until all is computed
  kSending,     // until outputs and figures have left
  kDone,        // the status follows
  kStopping,    // it has failed, and compute still returns
  kFailed,      // likewise
};
inline constexpr int kRunPhases = 10;

struct RunTransition {
  RunPhase before, after;
};

// Threads: the call's own (receives rows), the executor and the sender. A short run has the call's
// alone, which does the part of all.
inline constexpr RunTransition kRunTransitions[] = {
    // The call's thread decides:
    {RunPhase::kOpening, RunPhase::kReading},       // RunOpen is right
    {RunPhase::kReading, RunPhase::kQueued},        // what it needs of files is there
    {RunPhase::kQueued, RunPhase::kAllocating},     // the lane is free
    {RunPhase::kAllocating, RunPhase::kReceiving},  // it holds all its memory and its ring
    {RunPhase::kReceiving, RunPhase::kComputing},   // RowsDone: all rows are there
    {RunPhase::kOpening, RunPhase::kFailed},
    {RunPhase::kReading, RunPhase::kFailed},
    {RunPhase::kQueued, RunPhase::kFailed},
    {RunPhase::kAllocating, RunPhase::kFailed},
    // The executor decides:
    {RunPhase::kComputing, RunPhase::kSending},  // the last result is there
    {RunPhase::kStopping, RunPhase::kFailed},    // it has returned
    // The sender decides:
    {RunPhase::kSending, RunPhase::kDone},    // the figures have left
    {RunPhase::kSending, RunPhase::kFailed},  // outputs have no place
    // The first of the three that fails, or that sees a cancellation, decides:
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

// Compute has returned, or never began.
constexpr bool HasComputed(RunPhase phase) {
  return phase == RunPhase::kSending || HasEnded(phase);
}

// Where a failure leads to.
constexpr RunPhase PhaseAfterFailure(RunPhase phase) {
  const bool computes = phase == RunPhase::kReceiving || phase == RunPhase::kComputing;
  return computes || phase == RunPhase::kStopping ? RunPhase::kStopping : RunPhase::kFailed;
}

// What the sender tells the coordinator next.
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

// How a run is served. To hand a short one on from thread to thread would take longer than its
// compute.
enum class RunMode {
  kThreads,     // it has an executor and a sender
  kCallThread,  // the call's thread does all
  kOneMessage,  // likewise, and all that it says is one message (RunWhole)
};

struct RunTraits {
  bool in_place = false;  // rows and outputs lie where coordinator and worker both reach them
  bool exchanges = false;
  bool projects_tiles = false;
  bool rows_there = false;  // when it was opened
  double flops = 0;
};

constexpr double kShortFlops = 5e8;  // some milliseconds of a processor

// A short run exchanges, sends and awaits nothing once its rows are there.
constexpr RunMode ModeOf(const RunTraits& run) {
  const bool is_short =
      run.in_place && !run.exchanges && !run.projects_tiles && run.flops <= kShortFlops;
  if (!is_short) return RunMode::kThreads;
  return run.rows_there ? RunMode::kOneMessage : RunMode::kCallThread;
}

}  // namespace hilbert_ring::server
