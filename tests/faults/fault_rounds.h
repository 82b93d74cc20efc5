#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/faults/fault_rig.h"

namespace hilbert_ring::testing {

struct Fault {
  std::string what;             // for the test's output
  std::function<void()> begin;  // once, from any thread
  std::function<void()> end;    // after the job's end, before the next job; may be null
};

struct FaultRounds {
  std::string name;
  uint64_t seed = 0;  // unless the environment sets another
  int few = 2;        // as RoundsOf of tally.h
  // A job's limit: this multiple of its undisturbed seconds, plus `more` seconds.
  double times = 3, more = 25;
};

// Each job ends soon, right or with a reason, and the service recovers.
void RunFaultRounds(const FaultRounds& rounds, const ClusterOptions& options,
                    const std::function<Fault(FaultRig&, std::mt19937_64&)>& draw);

}  // namespace hilbert_ring::testing
