// One job in one shard, with its rows at their slots: what benchmarks run again and again.
#pragma once

#include <memory>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::bench {

class OneShardJob {
 public:
  // With rows of random values in float32. The spec is right, and the device outlives the job.
  OneShardJob(const JobSpec& spec, Device& device);

  // Ends the program where it fails.
  void Run();
  double flops() const { return flops_; }  // of the last run

 private:
  Device& device_;
  Plan plan_;
  std::unique_ptr<ShardStore> store_;
  double flops_ = 0;
};

}  // namespace hilbert_ring::bench
