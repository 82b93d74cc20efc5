#include "engine/plan/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/plan/plan_size.h"

namespace hilbert_ring {
namespace {

constexpr double kMirrorGain = 0.98;  // mirroring must save at least 2% to be worth two ranges

constexpr size_t kMaxMirrorLengths = 4;  // tried at most

absl::Status Cancelled() { return absl::CancelledError("planning was cancelled"); }

absl::StatusOr<Plan> PlanOf(const JobSpec& spec, Shards shards, bool mirrored,
                            Cancellation& cancellation) {
  if (cancellation.Ask()) return Cancelled();
  Plan plan{
      .spec = spec, .rows = RowSizes(spec), .shards = std::move(shards), .mirrored = mirrored};
  plan.phases = Phases(spec);
  if (IsRectangular(spec)) {
    RectanglePlan rectangle = PlanRectangle(spec, plan.shards, plan.phases);
    plan.rectangle = std::move(rectangle.rectangle);
    plan.costs = std::move(rectangle.costs);
    return plan;
  }
  plan.segments = FindSegments(spec, plan.shards);
  if (cancellation.Ask()) return Cancelled();
  RETURN_IF_ERROR(CheckPlanSize(spec, plan.phases, plan.segments));
  plan.costs = CostOf(spec, plan.shards, plan.phases, plan.segments, cancellation);
  if (cancellation.Ask()) return Cancelled();
  return plan;
}

// Lengths of segments over several workers, longest first.
std::vector<int64_t> MirrorLengths(const JobSpec& spec, int workers) {
  std::vector<int64_t> lengths;
  if (!spec.causal || spec.ordering || workers == 1) return lengths;
  int64_t longest = 0;
  for (const Sequence& sequence : Sequences(spec)) longest = std::max(longest, sequence.length);
  for (const Branch& branch : spec.branches) {
    const int64_t length = std::min(branch.segment, longest);
    if (length > spec.tokens / workers / 2) lengths.push_back(length);
  }
  std::sort(lengths.rbegin(), lengths.rend());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  if (lengths.size() > kMaxMirrorLengths) lengths.resize(kMaxMirrorLengths);
  return lengths;
}

bool HasSeveralRanges(const Shards& shards) {
  for (int rank = 0; rank < shards.workers(); ++rank) {
    if (shards.OfRank(rank).size() > 1) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const JobSpec& spec, int workers, std::function<bool()> cancelled) {
  RETURN_IF_ERROR(Validate(spec));
  if (workers < 1 || workers > kMaxWorkers) {
    return absl::OutOfRangeError(
        absl::StrCat("workers is ", workers, ", must be 1 to ", kMaxWorkers));
  }
  RETURN_IF_ERROR(CheckSequences(spec));
  Cancellation cancellation(std::move(cancelled));
  if (IsRectangular(spec)) {
    return PlanOf(spec, EvenShards(KeyTokens(spec), workers), false, cancellation);
  }
  absl::StatusOr<Plan> best = PlanOf(spec, CutShards(spec, workers, 0), false, cancellation);
  RETURN_IF_ERROR(best.status());
  for (const int64_t length : MirrorLengths(spec, workers)) {
    absl::StatusOr<Plan> plan = PlanOf(spec, CutShards(spec, workers, length), true, cancellation);
    if (absl::IsCancelled(plan.status())) return plan;
    if (!plan.ok()) continue;  // mirroring doubles the ranges, which may be too many
    if (BusiestFinish(plan->costs) < kMirrorGain * BusiestFinish(best->costs)) {
      best = std::move(plan);
    }
  }
  return best;
}

absl::StatusOr<Plan> MakePlan(const JobSpec& spec, Shards shards) {
  RETURN_IF_ERROR(Validate(spec));
  RETURN_IF_ERROR(CheckSequences(spec));
  const bool mirrored = HasSeveralRanges(shards);
  Cancellation cancellation(nullptr);
  return PlanOf(spec, std::move(shards), mirrored, cancellation);
}

}  // namespace hilbert_ring
