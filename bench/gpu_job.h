// gpu_bench's job of the published configuration on one device: data, run and error.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/executor.h"

namespace hilbert_ring::bench {

// Bfloat16 rows in the device's memory. Failures throw (or_fail.h).
class Job {
 public:
  Job(Device& device, int64_t tokens);

  Figures Run();

  // Root mean square error of a few tokens' rows, relative to float64's values.
  double Error() const;

 private:
  Device& device_;
  const Plan plan_;
  const std::vector<float> numbers_;  // element i of Q, of K and of V is number i % their count
  std::unique_ptr<ShardStore> store_;
};

}  // namespace hilbert_ring::bench
