#include "engine/plan/plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/plan/plan_size.h"

namespace hilbert_ring {
namespace {

constexpr double kMirrorGain = 0.98;  // mirroring must save at least 2% to be worth two ranges

constexpr size_t kMaxMirrorLengths = 4;  // tried at most

absl::Status Cancelled() { return absl::CancelledError("planning was cancelled"); }

// rank: whose local segments are planned; empty: all ranks.
absl::StatusOr<Plan> PlanOf(JobSpec of_job, Shards shards, bool mirrored,
                            Cancellation& cancellation, std::optional<int> rank = std::nullopt) {
  if (cancellation.Ask()) return Cancelled();
  Plan plan{.spec = std::move(of_job), .shards = std::move(shards), .mirrored = mirrored};
  const JobSpec& spec = plan.spec;
  plan.rows = RowSizes(spec);
  plan.phases = Phases(spec);
  if (IsRectangular(spec)) {
    RectanglePlan rectangle = PlanRectangle(spec, plan.shards, plan.phases);
    plan.rectangle = std::move(rectangle.rectangle);
    plan.costs = std::move(rectangle.costs);
    return plan;
  }
  plan.segments = FindSegments(spec, plan.shards, rank);
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
  const int64_t longest = LongestSequence(spec);
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

absl::StatusOr<Plan> MakePlan(JobSpec spec, Shards shards, std::optional<int> rank) {
  RETURN_IF_ERROR(Validate(spec));
  RETURN_IF_ERROR(CheckSequences(spec));
  const bool mirrored = HasSeveralRanges(shards);
  Cancellation cancellation(nullptr);
  ASSIGN_OR_RETURN(Plan plan,
                   PlanOf(std::move(spec), std::move(shards), mirrored, cancellation, rank));
  if (rank) KeepListsOf(*rank, plan);
  return plan;
}

int64_t ListBytes(const Plan& plan) {
  const auto bytes = [](const auto& list) {
    return static_cast<int64_t>(list.capacity() * sizeof(list[0]));
  };
  return bytes(plan.segments.local) + (plan.rectangle ? bytes(plan.rectangle->pairs) : 0);
}

void KeepListsOf(int rank, Plan& plan) {
  std::vector<LocalSegments>& runs = plan.segments.local;
  const auto is_own = [rank](const LocalSegments& run) { return run.rank == rank; };
  std::vector<LocalSegments> own;
  own.reserve(static_cast<size_t>(std::ranges::count_if(runs, is_own)));
  std::ranges::copy_if(runs, std::back_inserter(own), is_own);
  runs = std::move(own);
  // IsRectangular() reads the lengths if both totals are equal.
  if (plan.rectangle && KeyTokens(plan.spec) == plan.spec.tokens) return;
  plan.spec.sequence_lengths = std::vector<int64_t>();
  plan.spec.key_sequence_lengths = std::vector<int64_t>();
}

}  // namespace hilbert_ring
