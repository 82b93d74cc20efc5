#include "engine/run/stretches.h"

#include <algorithm>

namespace hilbert_ring {
namespace {

constexpr int64_t kMostStretches = 256;  // of one range

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t Ended(const LocalSegments& run, int64_t slot) {
  return std::clamp<int64_t>((slot - run.begin) / run.length, 0, run.count);
}

int64_t StretchRows(const Plan& plan, const ShardRange& range, int64_t least_rows) {
  int64_t longest = 1;
  for (int branch = 0; branch < static_cast<int>(plan.spec.branches.size()); ++branch) {
    for (const LocalSegments& run : RunsWithin(plan.segments, branch, range.begin, range.end)) {
      longest = std::max(longest, run.length);
    }
  }
  const int64_t least = std::max(least_rows, CeilDiv(range.size(), kMostStretches));
  return CeilDiv(least, longest) * longest;
}

// Slots of the range before the result are final once all segments that end by `end` are computed.
int64_t FinalSlot(const Plan& plan, const ShardRange& range, int64_t end) {
  int64_t final_slot = end;
  for (int branch = 0; branch < static_cast<int>(plan.spec.branches.size()); ++branch) {
    const auto runs = RunsWithin(plan.segments, branch, range.begin, end);
    if (runs.empty()) continue;
    const LocalSegments& last = runs.back();  // those before have ended
    const int64_t ended = Ended(last, end);
    if (ended < last.count) final_slot = std::min(final_slot, last.begin + ended * last.length);
  }
  return final_slot;
}

// An upper bound of the tasks of a stretch.
int64_t TasksOf(const Plan& plan, const Stretch& stretch) {
  int64_t runs = 0;
  for (int branch = 0; branch < static_cast<int>(plan.spec.branches.size()); ++branch) {
    runs += std::ssize(RunsWithin(plan.segments, branch, stretch.begin, stretch.end));
  }
  return runs * plan.spec.kv_heads;
}

void AddParts(const Plan& plan, const Stretch& stretch, std::vector<Stretch>& parts) {
  if (stretch.end - stretch.begin <= 1 || TasksOf(plan, stretch) <= kMostTasks) {
    parts.push_back(stretch);
    return;
  }
  Stretch first = stretch, second = stretch;
  first.end = second.begin = stretch.begin + (stretch.end - stretch.begin) / 2;
  AddParts(plan, first, parts);
  AddParts(plan, second, parts);
}

}  // namespace

std::vector<Stretch> PartsOf(const Plan& plan, const Stretch& stretch) {
  std::vector<Stretch> parts;
  AddParts(plan, stretch, parts);
  return parts;
}

std::vector<Stretch> MakeStretches(const Plan& plan, int rank, bool exchanges_blocks,
                                   int64_t least_rows) {
  std::vector<Stretch> stretches;
  for (const ShardRange& range : plan.shards.OfRank(rank)) {
    const int64_t rows = exchanges_blocks ? range.size() : StretchRows(plan, range, least_rows);
    for (int64_t begin = range.begin; begin < range.end; begin += rows) {
      Stretch& stretch = stretches.emplace_back();
      stretch.begin = begin;
      stretch.end = std::min(range.end, begin + rows);
      stretch.rows_needed = range.LocalRow(stretch.end);
      if (!exchanges_blocks)
        stretch.rows_final = range.LocalRow(FinalSlot(plan, range, stretch.end));
    }
  }
  return stretches;
}

LocalSegments InStretch(const LocalSegments& run, const Stretch& stretch) {
  LocalSegments part = run;
  const int64_t before = Ended(run, stretch.begin);
  part.begin = run.begin + before * run.length;
  part.count = Ended(run, stretch.end) - before;
  return part;
}

}  // namespace hilbert_ring
