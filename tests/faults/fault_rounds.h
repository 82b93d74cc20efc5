// Rounds of random jobs, in each of which something breaks at a random moment.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/faults/fault_rig.h"

namespace hilbert_ring::testing {

// What breaks in one round.
struct Fault {
  std::string what;             // for the test's output
  std::function<void()> begin;  // once, from any thread
  std::function<void()> end;    // once the job has ended, before the next one; may be null
};

struct FaultRounds {
  std::string name;
  uint64_t seed = 0;  // where the environment says no other
  int few = 2;        // as RoundsOf of tally.h
  // Seconds that a job may take: so many times what it takes undisturbed, and so many more.
  double times = 3, more = 25;
};

// A fault that `draw` makes before each job. Each job ends right or with an error that says why,
// soon, and the service is as before.
void RunFaultRounds(const FaultRounds& rounds, const ClusterOptions& options,
                    const std::function<Fault(FaultRig&, std::mt19937_64&)>& draw);

}  // namespace hilbert_ring::testing
