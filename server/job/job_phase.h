// The phases of a job: what it waits for as a whole, though its workers' phases overlap.
#pragma once

#include <string_view>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::server {

enum class JobPhase {
  kOpen,               // the first message
  kValidating,         // the check of spec and id
  kSizing,             // the numbers of workers on which it can run
  kQueued,             // its turn
  kWaitingForWorkers,  // more live workers: it does not fit
  kRing,               // its workers' communicator
  kStarting,           // the workers' memory
  kReceiving,          // all rows
  kComputing,          // every worker's part
  kSending,            // the client that takes all outputs
  kChecking,           // rows that are computed again
  kDone,               // the report leaves
  kFailed,             // the status leaves
};
inline constexpr int kJobPhases = 13;

struct JobPhaseNames {
  std::string_view name;
  v1::Job::State state;
  v1::Span::Kind span;  // of a trace
};
const JobPhaseNames& NamesOf(JobPhase phase);
inline std::string_view NameOf(JobPhase phase) { return NamesOf(phase).name; }

constexpr bool HasEnded(JobPhase phase) { return phase >= JobPhase::kDone; }

// A phase leads to the next one, or the job fails. A job may wait for workers any number of times,
// and its failed execution (kRing to kChecking) leads back to the queue.
constexpr bool MayFollow(JobPhase before, JobPhase after) {
  if (HasEnded(before)) return false;
  if (after == JobPhase::kFailed) return true;
  if (after == JobPhase::kQueued && before >= JobPhase::kWaitingForWorkers) return true;
  if (before == JobPhase::kWaitingForWorkers) return false;
  return static_cast<int>(after) == static_cast<int>(before) + 1 ||
         (before == JobPhase::kQueued && after == JobPhase::kRing);
}

}  // namespace hilbert_ring::server
