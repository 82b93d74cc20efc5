// The plan of any spec: refused with Validate's reason, or a plan whose shards tile the slots and
// whose figures add up and never wrap. tests/unit/plan proves that each pair is computed once.
#include <cmath>

#include "engine/base/saturating.h"
#include "engine/plan/plan.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/input_spec.h"
#include "tests/fuzz/target.h"

namespace hilbert_ring::fuzz {
namespace {

void CheckShards(const Plan& plan, int workers) {
  int64_t next = 0;
  for (const ShardRange& range : plan.shards.ranges()) {
    Require(range.begin == next && range.end > range.begin, "shards tile the slots");
    next = range.end;
  }
  const int64_t slots = KeyTokens(plan.spec);
  Require(next == slots && plan.shards.workers() == workers, "shards hold all slots");
  const double most =
      kMaxRowsOverMean * static_cast<double>(slots) / static_cast<double>(workers) + 1;
  for (int rank = 0; rank < workers; ++rank) {
    Require(static_cast<double>(plan.shards.Rows(rank)) <= most, "no shard is far above the mean");
  }
}

void CheckCosts(const Plan& plan) {
  const Costs& costs = plan.costs;
  int64_t tokens = 0, sent = 0, received = 0, of_branches = 0;
  for (const WorkerCost& worker : costs.workers) {
    for (const int64_t bytes :
         {worker.tokens, worker.bytes_sent, worker.bytes_received, worker.shard_bytes,
          worker.accumulator_bytes, worker.exchange_buffer_bytes, worker.order_bytes}) {
      Require(bytes >= 0, "no figure of a worker is negative");
    }
    Require(worker.resident_bytes() >= worker.shard_bytes, "resident bytes hold the shard");
    Require(std::isfinite(worker.flops) && worker.flops >= 0, "flops are a number");
    tokens += worker.tokens;
    sent = SaturatingAdd(sent, worker.bytes_sent);
    received = SaturatingAdd(received, worker.bytes_received);
  }
  for (const BranchCost& branch : costs.branches) {
    Require(branch.bytes_exchanged >= 0, "no figure of a branch is negative");
    of_branches = SaturatingAdd(of_branches, branch.bytes_exchanged);
  }
  Require(tokens == KeyTokens(plan.spec), "workers hold all tokens");
  Require(sent == received, "received bytes equal sent bytes");
  Require(received == costs.bytes_exchanged, "the exchange is what workers receive");
  Require(of_branches == costs.bytes_exchanged, "the exchange is that of the branches");
  Require(costs.bytes_exchanged_naive >= 0, "the naive figure does not wrap");
  Require(costs.steps > 0 || costs.bytes_exchanged == 0, "steps move bytes");
  Require(costs.steps == 0 || costs.bytes_exchanged > 0 || plan.rectangle, "a step moves bytes");
  Require(costs.busiest_over_mean >= 1 - 1e-9, "the busiest is not below the mean");
}

}  // namespace

void PlanOfSpec(Bytes bytes) {
  InputBytes input(bytes);
  const int workers = 1 + input.Below(input.Below(8) == 0 ? 20 : 5);
  const JobSpec spec = InputSpec(input, 120);
  const absl::Status valid = Validate(spec);
  auto plan = MakePlan(spec, workers);
  if (!valid.ok()) {
    Require(plan.status() == valid, "a spec that is not valid is not planned");
    Require(absl::IsInvalidArgument(valid) || absl::IsOutOfRange(valid), "the error is typed");
    return;
  }
  if (absl::IsOutOfRange(plan.status())) return;  // too large to plan
  Require(plan.ok(), "a valid spec has a plan");
  CheckShards(*plan, workers);
  CheckCosts(*plan);
  Require(MakePlan(plan->spec, plan->shards).ok(), "a worker can plan from the shards");
}

}  // namespace hilbert_ring::fuzz
