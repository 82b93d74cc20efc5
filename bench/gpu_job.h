// gpu_bench's jobs on one device: data, run and error.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/executor.h"

namespace hilbert_ring::bench {

// Rows of the spec's type, bfloat16, in the device's memory. Failures throw (or_fail.h).
class Job {
 public:
  Job(Device& device, const JobSpec& spec);

  Figures Run();
  int64_t key_bytes() const;  // bytes of all keys and values

  // Root mean square error of a few tokens' rows, relative to float64's values.
  double Error() const;

 private:
  Device& device_;
  const Plan plan_;
  const std::vector<float> numbers_;  // element i of Q, of K and of V is number i % their count
  std::unique_ptr<ShardStore> store_;
};

}  // namespace hilbert_ring::bench
