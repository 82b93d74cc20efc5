// A job in one shard with its rows at their slots, which benchmarks run repeatedly.
//
//   OneShardJob job(spec, *device);
//   job.Place(TensorKind::kQ, rows);
//   job.Run();
//
// Failures throw (or_fail.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::bench {

class OneShardJob {
 public:
  // The spec has no coordinates; the device outlives the job.
  OneShardJob(const JobSpec& spec, Device& device);

  // A tensor's rows by slot, which are tokens without an ordering.
  std::span<std::byte> Rows(TensorKind kind);

  // Rows are ordered by token and have the job's type.
  void Place(TensorKind kind, std::span<const std::byte> rows);
  std::vector<std::byte> Out() const;

  void Run();
  double flops() const { return flops_; }  // of the last run

 private:
  Device& device_;
  Plan plan_;
  std::unique_ptr<ShardStore> store_;
  std::vector<int64_t> tokens_;  // by slot
  double flops_ = 0;
};

}  // namespace hilbert_ring::bench
