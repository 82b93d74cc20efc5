#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/fault_job.h"

namespace hilbert_ring::testing {

// Returns HILBERT_RING_FAULT_ROUNDS if it is set, else `few`, or 5 * few at full depth.
int RoundsOf(int few);

// Returns HILBERT_RING_FAULT_SEED if it is set, else `seed`. Prints it, so that a run can be
// repeated.
uint64_t FaultSeed(const std::string& test, uint64_t seed);

double Percentile(std::vector<double> values, double part);

class Tally {
 public:
  explicit Tally(std::string name) : name_(std::move(name)) {}

  // `trace`: the round's seed, fault and job, printed with the job's end.
  void Count(const JobEnd& end, bool fault_happened, const std::string& trace);

  int bad() const { return jobs_ - right_ - typed_; }

  void Print() const;

 private:
  const std::string name_;
  int jobs_ = 0, faults_ = 0, right_ = 0, typed_ = 0;
  int retried_ = 0;          // by the service
  int attempted_again_ = 0;  // by the client library
  std::map<std::string, int> reasons_;
  std::vector<double> seconds_;
};

}  // namespace hilbert_ring::testing
