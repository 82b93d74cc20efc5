// Numbers of workers on which a job can run, with time and memory. The scheduler chooses a size.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/plan/plan.h"
#include "server/cluster/membership.h"
#include "server/schedule/fit.h"

namespace hilbert_ring::server {

struct JobSize {
  int workers = 1;
  double seconds = 0;          // predicted, from the first row to the last output
  int64_t bytes = 0;           // of memory, on the worker that needs most
  int64_t widened_bytes = 0;   // more on a worker without bfloat16 products
  double compute_seconds = 0;  // of all threads of a worker, without reading weights

  int64_t BytesOn(const Member& member) const;

  double SecondsOfOneThread(const Member& member) const;  // on an express lane
};

// Workers' speeds, measured with each job's end. Thread-safe.
class ComputeRate {
 public:
  void Observe(const std::string& worker, double flops, double seconds);

  double flops_per_second() const;  // of one worker

  struct Measured {
    int workers = 0;              // with a measurement
    double flops_per_second = 0;  // of the slowest of them
  };
  Measured MeasuredOf(const Members& workers) const;

  // After it left: another process may register at its address.
  void Forget(const std::string& worker);

 private:
  mutable Mutex mutex_;
  std::map<std::string, double> rates_ ABSL_GUARDED_BY(mutex_);  // flops per second, by address
  // Starts with that of a core: jobs spread too wide lose less time than too narrow.
  double flops_per_second_ ABSL_GUARDED_BY(mutex_) = 5e10;
};

JobSize SizeOf(const Plan& plan, double flops_per_second);

// Predicted time when nothing else runs, and its basis. 0 seconds: no worker has a measurement.
struct PlanTime {
  double seconds = 0;
  std::string basis;
};
PlanTime PredictTime(const Plan& plan, const ComputeRate::Measured& measured);

// Wraps the planner: if a member has no bfloat16 products, plans count the widened bytes.
Planner CountedOn(const Members& members, Planner planner);

// Sizes of least_workers, doubled up to most_workers. Returns the planner's errors.
absl::StatusOr<std::vector<JobSize>> SizesOf(const Planner& planner, int least_workers,
                                             int most_workers, double flops_per_second);

}  // namespace hilbert_ring::server
