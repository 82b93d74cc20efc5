#include "engine/plan/pattern.h"

#include <algorithm>

namespace hilbert_ring {
namespace {

Phase MakePhase(const JobSpec& spec, int branch, int64_t offset, int64_t head_begin,
                int64_t head_end) {
  return {.branch = branch,
          .offset = offset,
          .head_begin = head_begin,
          .head_end = head_end,
          .kv_begin = head_begin * spec.kv_heads / spec.heads,
          .kv_end = (head_end - 1) * spec.kv_heads / spec.heads + 1};
}

// Returns the number of pairs with a key at most `ahead` slots after its query.
double PairsUpTo(const Progression& queries, const Progression& keys, int64_t ahead) {
  const auto key_count = static_cast<double>(keys.count);
  if (ahead == kUnbounded) return static_cast<double>(queries.count) * key_count;
  if (queries.count == 0 || keys.count == 0) return 0;
  // Query i sees the first clamp(i + seen, 0, keys.count) keys.
  const int64_t distance = queries.first - keys.first + ahead;
  const int64_t step = queries.step;
  const int64_t shift = distance >= 0 ? distance / step : -((-distance + step - 1) / step);
  const int64_t seen = shift + 1;
  const int64_t rising_begin = std::clamp<int64_t>(-seen, 0, queries.count);
  const int64_t rising_end = std::clamp<int64_t>(keys.count - seen, rising_begin, queries.count);
  const auto rising = static_cast<double>(rising_end - rising_begin);
  const auto first = static_cast<double>(rising_begin + seen);
  return rising * first + rising * (rising - 1) / 2 +
         static_cast<double>(queries.count - rising_end) * key_count;
}

}  // namespace

std::vector<Phase> Phases(const JobSpec& spec) {
  std::vector<Phase> phases;
  const auto branches = static_cast<int64_t>(spec.branches.size());
  int64_t head = 0;
  for (int64_t i = 0; i < branches; ++i) {
    const int64_t dilation = spec.branches[i].dilation;
    if (spec.mixing == Mixing::kHeadGroups) {
      const int64_t size = spec.heads / branches + (i < spec.heads % branches ? 1 : 0);
      if (size > 0) {
        phases.push_back(MakePhase(spec, static_cast<int>(i), i % dilation, head, head + size));
      }
      head += size;
      continue;
    }
    const int64_t group = (spec.heads - 1) / dilation + 1;
    for (int64_t begin = 0, offset = 0; begin < spec.heads; begin += group, ++offset) {
      phases.push_back(
          MakePhase(spec, static_cast<int>(i), offset, begin, std::min(begin + group, spec.heads)));
    }
  }
  return phases;
}

PhaseRange PhasesOf(const std::vector<Phase>& phases, int branch) {
  const auto begin = std::lower_bound(phases.begin(), phases.end(), branch,
                                      [](const Phase& p, int b) { return p.branch < b; });
  const auto end = std::upper_bound(begin, phases.end(), branch,
                                    [](int b, const Phase& p) { return b < p.branch; });
  return {static_cast<size_t>(begin - phases.begin()), static_cast<size_t>(end - phases.begin())};
}

HeadRange QueryHeads(const JobSpec& spec, const Phase& phase, int64_t kv_head) {
  const int64_t share = spec.heads / spec.kv_heads;
  return {std::max(phase.head_begin, kv_head * share),
          std::min(phase.head_end, (kv_head + 1) * share)};
}

Progression Selected(int64_t origin, int64_t offset, int64_t dilation, int64_t begin, int64_t end) {
  int64_t first = origin + offset;
  if (first < begin) first += ((begin - first - 1) / dilation + 1) * dilation;
  if (first >= end) return {.first = first, .step = dilation, .count = 0};
  return {.first = first, .step = dilation, .count = (end - 1 - first) / dilation + 1};
}

int64_t ZeroKeys(const JobSpec& spec, const Branch& branch, int64_t segment_length, int64_t rows) {
  if (!AddsZeroKeys(spec)) return 0;
  return (segment_length - 1) / branch.dilation + 1 - rows;
}

Reach ReachOf(const JobSpec& spec) {
  if (spec.ordering) return {};
  Reach reach;
  if (spec.window) {
    reach.left = spec.window->left.value_or(kUnbounded);
    reach.right = spec.window->right.value_or(kUnbounded);
  }
  if (spec.causal) reach.right = 0;
  return reach;
}

bool Sees(const Reach& reach, const Progression& queries, const Progression& keys) {
  return keys.first - queries.last() <= reach.right && queries.first - keys.last() <= reach.left;
}

double Pairs(const Progression& queries, const Progression& keys, const Reach& reach) {
  double pairs = PairsUpTo(queries, keys, reach.right);
  if (reach.left != kUnbounded) pairs -= PairsUpTo(queries, keys, -reach.left - 1);
  return pairs;
}

}  // namespace hilbert_ring
