// The course of a job, as code: its phases, and which may follow which.
//
//   kOpen -> kValidating -> kSizing -> kQueued <-> kParked
//   kQueued -grant-> kRing -> kStarting -> kReceiving -> kComputing -> kSending
//                                                     -> kChecking -> kDone
//
//   kRing to kChecking -a worker was lost, retries are left-> kQueued
//
//   any but the last two -a stop, or another status-> kFailed
//
// From kRing to kChecking is one execution of the job. Phases overlap in what workers do: they
// compute on the first rows while others come, and outputs leave while others are computed. A phase
// says what the job as a whole waits for.
#pragma once

#include <string_view>

namespace hilbert_ring::server {

enum class JobPhase {
  kOpen,        // for its first message
  kValidating,  // its spec is checked, and its id is taken
  kSizing,      // on how many workers it could run
  kQueued,      // for its turn
  kParked,      // for workers: those that are up cannot hold it
  kRing,        // for the communicator of its workers
  kStarting,    // until they hold their memory, and the client is admitted
  kReceiving,   // until all rows are there
  kComputing,   // until every worker has computed its part
  kSending,     // until the client has all outputs
  kChecking,    // rows are computed again
  kDone,        // its report is on its way
  kFailed,      // its status is
};
inline constexpr int kJobPhases = 13;

// In lower case: "queued".
std::string_view NameOf(JobPhase phase);

// Of an execution: the job has workers.
constexpr bool HasWorkers(JobPhase phase) {
  return phase >= JobPhase::kRing && phase <= JobPhase::kChecking;
}

constexpr bool HasEnded(JobPhase phase) { return phase >= JobPhase::kDone; }

constexpr bool MayFollow(JobPhase before, JobPhase after) {
  switch (after) {
    case JobPhase::kOpen:
      return false;
    case JobPhase::kQueued:
      return before == JobPhase::kSizing || before == JobPhase::kParked || HasWorkers(before);
    case JobPhase::kParked:
    case JobPhase::kRing:
      return before == JobPhase::kQueued;
    case JobPhase::kFailed:
      return !HasEnded(before);
    case JobPhase::kValidating:
    case JobPhase::kSizing:
    case JobPhase::kStarting:
    case JobPhase::kReceiving:
    case JobPhase::kComputing:
    case JobPhase::kSending:
    case JobPhase::kChecking:
    case JobPhase::kDone:
      return static_cast<int>(before) + 1 == static_cast<int>(after);
  }
  return false;
}

}  // namespace hilbert_ring::server
