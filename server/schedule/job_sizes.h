// How many workers a job could run on, and what it would take there: what the scheduler chooses
// from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/plan/plan.h"
#include "server/cluster/membership.h"
#include "server/schedule/planner.h"

namespace hilbert_ring::server {

struct JobSize {
  int workers = 1;
  double seconds = 0;          // predicted, from the first row to the last output
  int64_t bytes = 0;           // of memory, on the worker that needs most
  int64_t widened_bytes = 0;   // more, where that has no products of bfloat16
  double compute_seconds = 0;  // of `seconds`, with all threads of a worker

  int64_t BytesOn(const Member& member) const;

  // On one of the member's express lanes, which have one thread each.
  double SecondsOfOneThread(const Member& member) const;
};

// What workers compute, learned from the jobs that they end. Thread-safe.
class ComputeRate {
 public:
  // Of one worker's part of a job.
  void Observe(const std::string& worker, double flops, double seconds);

  double flops_per_second() const;  // of one worker

  struct Measured {
    int workers = 0;              // of those asked for, that have been measured
    double flops_per_second = 0;  // of the slowest of them
  };
  Measured MeasuredOf(const std::vector<std::string>& workers) const;

  // It has left; another process may come at its address.
  void Forget(const std::string& worker);

 private:
  mutable Mutex mutex_;
  std::map<std::string, double> rates_ ABSL_GUARDED_BY(mutex_);  // flops per second, by address
  // At first that of one core: too low rather than too high, for a job that is
  // spread wider than it should be ends sooner than one that is not.
  double flops_per_second_ ABSL_GUARDED_BY(mutex_) = 5e10;
};

// Prediction for one plan, given the rate of one worker.
JobSize SizeOf(const Plan& plan, double flops_per_second);

// How long a plan is predicted to take when nothing else runs, and in words what that rests on. 0
// seconds: no worker has been measured.
struct PlanTime {
  double seconds = 0;
  std::string basis;
};
PlanTime PredictTime(const Plan& plan, const ComputeRate::Measured& measured);

// The planner, whose plans count what is widened where one of the members has no products of
// bfloat16: what the worker that takes most will take.
Planner CountedOn(const Members& members, Planner planner);

// Sizes in rising order: least_workers, twice as many, and so on, and most_workers.
// The planner's errors.
absl::StatusOr<std::vector<JobSize>> SizesOf(const Planner& planner, int least_workers,
                                             int most_workers, double flops_per_second);

}  // namespace hilbert_ring::server
