#include "server/schedule/job_sizes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "server/schedule/fit.h"

namespace hilbert_ring::server {
namespace {

// Two cores of an AMD EPYC (Zen 3), workers of one host: a 64-token job takes 2.7 ms on one worker,
// 4.4 ms in a ring of two.
constexpr double kJobSeconds = 2.5e-3;
constexpr double kWorkerSeconds = 3e-4;
constexpr double kRingSeconds = 1e-3;
constexpr double kStepSeconds = 2e-4;
constexpr double kBytesPerSecond = 1e9;  // of rows between coordinator and workers, and of a ring

constexpr double kLeastObserved = 0.01;  // seconds; shorter times are noise
constexpr double kWeight = 0.3;          // of the newest job

}  // namespace

void ComputeRate::Observe(const std::string& worker, double flops, double seconds) {
  if (seconds < kLeastObserved || flops <= 0) return;
  const double rate = flops / seconds;
  const MutexLock lock(mutex_);
  flops_per_second_ += kWeight * (rate - flops_per_second_);
  const auto [known, first] = rates_.try_emplace(worker, rate);
  if (!first) known->second += kWeight * (rate - known->second);
}

ComputeRate::Measured ComputeRate::MeasuredOf(const Members& workers) const {
  const MutexLock lock(mutex_);
  Measured measured;
  for (const auto& worker : workers) {
    const auto known = rates_.find(worker->address);
    if (known == rates_.end()) continue;
    if (measured.workers == 0 || known->second < measured.flops_per_second) {
      measured.flops_per_second = known->second;
    }
    ++measured.workers;
  }
  return measured;
}

void ComputeRate::Forget(const std::string& worker) {
  const MutexLock lock(mutex_);
  rates_.erase(worker);
}

double ComputeRate::flops_per_second() const {
  const MutexLock lock(mutex_);
  return flops_per_second_;
}

int64_t JobSize::BytesOn(const Member& member) const {
  return member.bfloat16_products ? bytes : SaturatingAdd(bytes, widened_bytes);
}

double JobSize::SecondsOfOneThread(const Member& member) const {
  return seconds + compute_seconds * (std::max(1, member.threads) - 1);
}

JobSize SizeOf(const Plan& plan, double flops_per_second) {
  JobSize size{.workers = plan.shards.workers()};
  double compute = 0, exchange = 0, shards = 0;
  int64_t widened = 0;
  for (const WorkerCost& worker : plan.costs.workers) {
    compute = std::max(compute, (worker.flops + worker.weight_flops) / flops_per_second);
    size.compute_seconds = std::max(size.compute_seconds, worker.flops / flops_per_second);
    exchange = std::max(exchange, static_cast<double>(worker.bytes_received) / kBytesPerSecond);
    shards += static_cast<double>(worker.shard_bytes);
    const int64_t bytes = SaturatingAdd(worker.resident_bytes(), kRunOverheadBytes);
    size.bytes = std::max(size.bytes, bytes);
    widened = std::max(widened, SaturatingAdd(bytes, worker.widened_bytes));
  }
  size.widened_bytes = widened - size.bytes;
  size.seconds = kJobSeconds + kWorkerSeconds * (size.workers - 1) + shards / kBytesPerSecond;
  if (plan.costs.steps > 0) {
    // Blocks travel while others are computed: only the excess counts.
    size.seconds += kRingSeconds + kStepSeconds * static_cast<double>(plan.costs.steps) +
                    std::max(0.0, exchange - compute);
  }
  size.seconds += compute;
  return size;
}

PlanTime PredictTime(const Plan& plan, const ComputeRate::Measured& measured) {
  if (measured.workers == 0) return {.basis = "no worker has been measured by a job yet"};
  const JobSize size = SizeOf(plan, measured.flops_per_second);
  return {.seconds = size.seconds,
          .basis = absl::StrFormat("%.3g Gflop/s, the slowest of %d worker%s in the jobs that it "
                                   "has computed; rows and blocks at %.3g GB/s",
                                   measured.flops_per_second / 1e9, measured.workers,
                                   measured.workers == 1 ? "" : "s", kBytesPerSecond / 1e9)};
}

Planner CountedOn(const Members& members, Planner planner) {
  if (std::ranges::all_of(members, [](const auto& member) { return member->bfloat16_products; })) {
    return planner;
  }
  return [planner = std::move(planner)](int workers) -> absl::StatusOr<Plan> {
    ASSIGN_OR_RETURN(Plan plan, planner(workers));
    CountWidened(plan.costs);
    return plan;
  };
}

absl::StatusOr<std::vector<JobSize>> SizesOf(const Planner& planner, int least_workers,
                                             int most_workers, double flops_per_second) {
  std::vector<JobSize> sizes;
  for (int workers = least_workers; workers > 0;) {
    ASSIGN_OR_RETURN(const auto plan, planner(workers));
    sizes.push_back(SizeOf(plan, flops_per_second));
    const int next = std::min(2 * workers, most_workers);
    workers = next > workers ? next : 0;
  }
  return sizes;
}

}  // namespace hilbert_ring::server
