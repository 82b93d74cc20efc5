// The phases of a job: what it waits for as a whole, though its workers' phases overlap.
#pragma once

#include <algorithm>
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

constexpr bool HasWorkers(JobPhase phase) {
  return phase >= JobPhase::kRing && phase <= JobPhase::kChecking;
}

constexpr bool HasEnded(JobPhase phase) { return phase >= JobPhase::kDone; }

struct JobTransition {
  JobPhase before, after;
};

inline constexpr JobTransition kJobTransitions[] = {
    // ServedJob decides:
    {JobPhase::kOpen, JobPhase::kValidating},
    {JobPhase::kValidating, JobPhase::kSizing},
    {JobPhase::kSizing, JobPhase::kQueued},             // its order's memory is reserved
    {JobPhase::kQueued, JobPhase::kWaitingForWorkers},  // the live workers cannot hold it
    {JobPhase::kWaitingForWorkers, JobPhase::kQueued},  // enough came
    {JobPhase::kChecking, JobPhase::kDone},             // its outputs are committed
    // Scheduler decides: it grants workers.
    {JobPhase::kQueued, JobPhase::kRing},
    // JobExecution decides:
    {JobPhase::kRing, JobPhase::kStarting},
    {JobPhase::kStarting, JobPhase::kReceiving},  // the client is admitted
    {JobPhase::kReceiving, JobPhase::kComputing},
    {JobPhase::kComputing, JobPhase::kSending},
    {JobPhase::kSending, JobPhase::kChecking},
};

constexpr bool MayFollow(JobPhase before, JobPhase after) {
  if (after == JobPhase::kFailed) return !HasEnded(before);
  if (after == JobPhase::kQueued && HasWorkers(before)) return true;
  return std::ranges::any_of(kJobTransitions, [&](const JobTransition& transition) {
    return transition.before == before && transition.after == after;
  });
}

}  // namespace hilbert_ring::server
