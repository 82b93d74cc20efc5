#include "engine/plan/choose_order.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/return_if_error.h"
#include "engine/order/permutation.h"
#include "engine/plan/plan.h"

namespace hilbert_ring {
namespace {

constexpr double kSameFlops = 1.01;  // a smaller ratio of flops counts as equal
// Bounds the tokens that are examined, so that the choice takes milliseconds for any job.
constexpr int64_t kMostSegments = 64;
constexpr int64_t kMostTokensOfASegment = 4096;

int64_t ShortestSegment(const JobSpec& spec) {
  const auto shortest =
      std::min_element(spec.branches.begin(), spec.branches.end(),
                       [](const Branch& a, const Branch& b) { return a.segment < b.segment; });
  return std::min(shortest->segment, KeyTokens(spec));
}

// Root mean square distance of tokens of a grid from their centre, in cells.
double RadiusOf(const std::vector<int64_t>& tokens, const std::vector<int64_t>& grid) {
  double square = 0;
  int64_t stride = 1;
  for (auto length = grid.rbegin(); length != grid.rend(); ++length) {
    double sum = 0, of_squares = 0;
    for (const int64_t token : tokens) {
      const auto at = static_cast<double>(token / stride % *length);
      sum += at;
      of_squares += at * at;
    }
    const auto count = static_cast<double>(tokens.size());
    square += of_squares / count - sum / count * (sum / count);
    stride *= *length;
  }
  return std::sqrt(std::max(square, 0.0));
}

absl::StatusOr<double> MeanRadius(const JobSpec& spec, const std::vector<int64_t>& grid) {
  ASSIGN_OR_RETURN(const auto order, Permutation::Make(spec, {}, /*max_stored_tokens=*/0));
  const int64_t length = ShortestSegment(spec);
  const int64_t segments = std::max<int64_t>(KeyTokens(spec) / length, 1);
  const int64_t drawn = std::min(segments, kMostSegments);
  std::vector<int64_t> tokens(std::min(length, kMostTokensOfASegment));
  double sum = 0;
  for (int64_t i = 0; i < drawn; ++i) {
    order->Tokens(i * segments / drawn * length, std::span<int64_t>(tokens));
    sum += RadiusOf(tokens, grid);
  }
  return sum / static_cast<double>(drawn);
}

struct Candidate {
  std::optional<Curve> curve;
  const char* name;
  double flops = 0, radius = 0;
};

}  // namespace

absl::StatusOr<OrderChoice> ChooseOrder(const JobSpec& spec,
                                        const std::function<bool()>& cancelled) {
  const Ordering& given = *spec.ordering;
  if (given.grid.empty() && given.coordinate_axes == 0) {
    return OrderChoice{.why = "neither a grid nor coordinates place the tokens"};
  }
  if (ShortestSegment(spec) == KeyTokens(spec)) {
    return OrderChoice{.why = "each segment holds all tokens, whatever their order"};
  }
  Candidate candidates[] = {{std::nullopt, "their own order"},
                            {Curve::kHilbert, "a Hilbert curve"},
                            {Curve::kMorton, "a Morton curve"}};
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (Candidate& candidate : candidates) {
    JobSpec ordered = spec;
    if (candidate.curve.has_value()) {
      ordered.ordering->curve = *candidate.curve;
    } else {
      ordered.ordering.reset();
    }
    ASSIGN_OR_RETURN(const Plan plan, MakePlan(ordered, 1, cancelled));
    candidate.flops = plan.costs.flops;
    least = std::min(least, candidate.flops);
    most = std::max(most, candidate.flops);
    if (given.grid.empty()) {
      // Only Hilbert's curve has no jumps.
      candidate.radius = candidate.curve == Curve::kHilbert ? 0 : 1;
      continue;
    }
    ASSIGN_OR_RETURN(candidate.radius, MeanRadius(ordered, given.grid));
  }
  const auto dear = [&](const Candidate& c) { return c.flops > least * kSameFlops; };
  const Candidate& chosen = *std::min_element(
      std::begin(candidates), std::end(candidates), [&](const Candidate& a, const Candidate& b) {
        return dear(a) != dear(b) ? dear(b) : a.radius < b.radius;
      });
  std::string why =
      dear(candidates[1]) || dear(candidates[2])
          ? absl::StrFormat("the plan computes %.3g flop in %s and %.3g along a curve", least,
                            chosen.name, most)
          : absl::StrCat("the plan computes the same in each order, and ",
                         given.grid.empty()
                             ? "a Hilbert curve keeps near tokens together without jumps"
                             : absl::StrFormat("segments along %s are the most compact: radius "
                                               "%.1f cells, %.1f as tokens come",
                                               chosen.name, chosen.radius, candidates[0].radius));
  return OrderChoice{.curve = chosen.curve, .why = std::move(why)};
}

}  // namespace hilbert_ring
