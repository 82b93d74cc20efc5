// The course of a job, as code: its phases, and which may follow which.
//
//   kOpen -> kValidating -> kSizing -> kQueued <-> kWaitingForWorkers
//   kQueued -grant-> kRing -> kStarting -> kReceiving -> kComputing -> kSending
//                                                     -> kChecking -> kDone
//
//   kRing to kChecking -failure_policy.h decides to try again, retries are left-> kQueued
//
//   any but the last two -a stop, or another status-> kFailed
//
// From kRing to kChecking is one execution of the job. Phases overlap in what workers do: they
// compute on the first rows while others come, and outputs leave while others are computed. A phase
// says what the job as a whole waits for.
#pragma once

#include <algorithm>
#include <string_view>

namespace hilbert_ring::server {

enum class JobPhase {
  kOpen,               // for its first message
  kValidating,         // its spec is checked, and its id is taken
  kSizing,             // on how many workers it could run
  kQueued,             // for its turn
  kWaitingForWorkers,  // for workers: those that are up cannot hold it
  kRing,               // for the communicator of its workers
  kStarting,           // until they hold their memory, and the client is admitted
  kReceiving,          // until all rows are there
  kComputing,          // until every worker has computed its part
  kSending,            // until the client has all outputs
  kChecking,           // rows are computed again
  kDone,               // its report is on its way
  kFailed,             // its status is
};
inline constexpr int kJobPhases = 13;

// In lower case: "queued".
std::string_view NameOf(JobPhase phase);

// Of an execution: the job has workers.
constexpr bool HasWorkers(JobPhase phase) {
  return phase >= JobPhase::kRing && phase <= JobPhase::kChecking;
}

constexpr bool HasEnded(JobPhase phase) { return phase >= JobPhase::kDone; }

struct JobTransition {
  JobPhase before, after;
};

inline constexpr JobTransition kJobTransitions[] = {
    // ServedJob decides:
    {JobPhase::kOpen, JobPhase::kValidating},    // the first message is there
    {JobPhase::kValidating, JobPhase::kSizing},  // its spec is right, its id is its own
    {JobPhase::kSizing, JobPhase::kQueued},      // its sizes are known, its quota is reserved
    {JobPhase::kQueued, JobPhase::kWaitingForWorkers},  // no live workers can hold it
    {JobPhase::kWaitingForWorkers, JobPhase::kQueued},  // enough came
    {JobPhase::kChecking, JobPhase::kDone},  // its outputs are committed, its report is made
    // Scheduler decides: it grants workers.
    {JobPhase::kQueued, JobPhase::kRing},
    // JobExecution decides:
    {JobPhase::kRing, JobPhase::kStarting},       // the ring is leased
    {JobPhase::kStarting, JobPhase::kReceiving},  // workers are asked, the client is admitted
    {JobPhase::kReceiving, JobPhase::kComputing},
    {JobPhase::kComputing, JobPhase::kSending},
    {JobPhase::kSending, JobPhase::kChecking},
};

// Beside these, failure_policy.h decides to try again, from any phase with workers, and a stop or
// another status fails a job that has not ended.
constexpr bool MayFollow(JobPhase before, JobPhase after) {
  if (after == JobPhase::kFailed) return !HasEnded(before);
  if (after == JobPhase::kQueued && HasWorkers(before)) return true;
  return std::ranges::any_of(kJobTransitions, [&](const JobTransition& transition) {
    return transition.before == before && transition.after == after;
  });
}

}  // namespace hilbert_ring::server
