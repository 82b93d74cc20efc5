// The plan of any spec: refused with the reason of Validate, or a plan whose shards tile the slots,
// whose figures add up and never wrap, and whose exchange both peers of a transfer see alike. Small
// plans are run without data, and compute every pair of the definition once.
#include <cmath>
#include <string>

#include "engine/base/saturating.h"
#include "engine/plan/plan.h"
#include "engine/plan/rank_schedule.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/input_spec.h"
#include "tests/fuzz/target.h"
#include "tests/plan/plan_simulation.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr int64_t kMaxSimulatedTokens = 40;
constexpr int64_t kMaxSimulatedPairs = 600;

void CheckShards(const Plan& plan, int workers) {
  int64_t next = 0;
  for (const ShardRange& range : plan.shards.ranges()) {
    Require(range.begin == next && range.end > range.begin, "shards tile the slots");
    next = range.end;
  }
  Require(next == plan.spec.tokens && plan.shards.workers() == workers, "shards hold all slots");
  const double most =
      kMaxRowsOverMean * static_cast<double>(plan.spec.tokens) / static_cast<double>(workers) + 1;
  for (int rank = 0; rank < workers; ++rank) {
    Require(static_cast<double>(plan.shards.Rows(rank)) <= most, "no shard is far above the mean");
  }
}

// Segments of a branch, local and spanning, are all that the definition has.
void CheckSegments(const Plan& plan) {
  std::vector<int64_t> found(plan.spec.branches.size(), 0);
  for (const LocalSegments& run : plan.segments.local) {
    Require(run.count > 0 && run.length > 0 && run.begin >= 0, "a run of segments is not empty");
    const int64_t end = run.begin + run.length * run.count;
    Require(end <= plan.shards.Find(run.begin).end && plan.shards.Find(run.begin).rank == run.rank,
            "local segments lie in one range of their rank");
    found[run.branch] += run.count;
  }
  for (const SpanningSegment& segment : plan.segments.spanning) {
    int64_t next = segment.begin;
    for (const Piece& piece : segment.pieces) {
      Require(piece.begin == next && piece.end > piece.begin, "pieces tile their segment");
      Require(plan.shards.Find(piece.begin).rank == piece.rank, "a piece is of its range's rank");
      next = piece.end;
    }
    Require(next == segment.end && segment.pieces.size() > 1, "a spanning segment is in pieces");
    ++found[segment.branch];
  }
  for (size_t branch = 0; branch < found.size(); ++branch) {
    int64_t segments = 0;
    for (const Sequence& sequence : Sequences(plan.spec)) {
      const int64_t length = SegmentLength(plan.spec.branches[branch], sequence);
      segments += (sequence.length - 1) / length + 1;
    }
    const BranchCost& cost = plan.costs.branches[branch];
    Require(found[branch] == segments, "every segment is found once");
    Require(cost.segments_local + cost.segments_exchanged == segments, "every segment is counted");
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
  Require(tokens == plan.spec.tokens, "workers hold all tokens");
  Require(sent == received, "what is sent is received");
  Require(received == costs.bytes_exchanged, "the exchange is what workers receive");
  Require(of_branches == costs.bytes_exchanged, "the exchange is that of the branches");
  Require(costs.bytes_exchanged_union >= 0 && costs.bytes_exchanged_union <= costs.bytes_exchanged,
          "the union is no more than the sum");
  Require(costs.bytes_exchanged_naive >= 0, "the naive figure does not wrap");
  Require((costs.steps > 0) == (costs.bytes_exchanged > 0), "steps move bytes");
  Require(costs.busiest_over_mean >= 1 - 1e-9, "the busiest is not below the mean");
}

void CheckSame(const Plan& plan) {
  const auto again = MakePlan(plan.spec, plan.shards);
  Require(again.ok(), "a worker can plan from the shards");
  const Costs& a = plan.costs;
  const Costs& b = again->costs;
  Require(a.steps == b.steps && a.bytes_exchanged == b.bytes_exchanged && a.flops == b.flops,
          "a worker's plan costs what the coordinator's does");
  for (size_t rank = 0; rank < a.workers.size(); ++rank) {
    Require(a.workers[rank].resident_bytes() == b.workers[rank].resident_bytes(),
            "a worker's plan takes what the coordinator's does");
  }
}

void Simulate(const Plan& plan) {
  int64_t rows = 0;
  for (const Sequence& sequence : Sequences(plan.spec)) rows += sequence.length * sequence.length;
  const auto branches = static_cast<int64_t>(plan.spec.branches.size());
  if (rows * plan.spec.heads * branches > kMaxSimulatedPairs) return;
  testing::PlanSimulation simulation(plan);
  const absl::Status status = simulation.Run();
  Require(status.ok(), std::string(status.message()));
  Require(simulation.pairs() == testing::PairsByDefinition(plan.spec),
          "every pair of the definition is computed");
  for (size_t rank = 0; rank < plan.costs.workers.size(); ++rank) {
    Require(simulation.received(static_cast<int>(rank)) == plan.costs.workers[rank].bytes_received,
            "a rank receives what the plan says");
  }
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
  Require(CountUnion(*plan).ok(), "the union of a plan is counted");
  CheckShards(*plan, workers);
  CheckSegments(*plan);
  CheckCosts(*plan);
  CheckSame(*plan);
  if (spec.tokens <= kMaxSimulatedTokens) Simulate(*plan);
}

}  // namespace hilbert_ring::fuzz
