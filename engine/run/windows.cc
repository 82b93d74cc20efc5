#include "engine/run/windows.h"

#include <algorithm>

namespace hilbert_ring {
namespace {

constexpr int64_t kMostWindows = 256;  // of one range

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool Within(const LocalSegments& run, const ShardRange& range) {
  return run.rank == range.rank && run.begin >= range.begin && run.begin < range.end;
}

// Segments of a run that end at `slot` or before.
int64_t Ended(const LocalSegments& run, int64_t slot) {
  return std::clamp<int64_t>((slot - run.begin) / run.length, 0, run.count);
}

int64_t WindowRows(const Plan& plan, const ShardRange& range, int64_t least_rows) {
  int64_t longest = 1;
  for (const LocalSegments& run : plan.segments.local) {
    if (Within(run, range)) longest = std::max(longest, run.length);
  }
  const int64_t least = std::max(least_rows, CeilDiv(range.size(), kMostWindows));
  return CeilDiv(least, longest) * longest;
}

// Slots of the range before this one are final when all segments that end by `end` are computed.
int64_t FinalSlot(const Plan& plan, const ShardRange& range, int64_t end) {
  int64_t final_slot = end;
  for (const LocalSegments& run : plan.segments.local) {
    if (!Within(run, range) || run.begin >= end) continue;
    const int64_t ended = Ended(run, end);
    if (ended < run.count) final_slot = std::min(final_slot, run.begin + ended * run.length);
  }
  return final_slot;
}

}  // namespace

std::vector<Window> MakeWindows(const Plan& plan, int rank, bool in_ring, int64_t least_rows) {
  std::vector<Window> windows;
  for (const ShardRange& range : plan.shards.OfRank(rank)) {
    const int64_t rows = in_ring ? range.size() : WindowRows(plan, range, least_rows);
    for (int64_t begin = range.begin; begin < range.end; begin += rows) {
      Window& window = windows.emplace_back();
      window.begin = begin;
      window.end = std::min(range.end, begin + rows);
      window.rows_needed = range.LocalRow(window.end);
      if (!in_ring) window.rows_final = range.LocalRow(FinalSlot(plan, range, window.end));
    }
  }
  return windows;
}

LocalSegments InWindow(const LocalSegments& run, const Window& window) {
  LocalSegments part = run;
  const int64_t before = Ended(run, window.begin);
  part.begin = run.begin + before * run.length;
  part.count = Ended(run, window.end) - before;
  return part;
}

}  // namespace hilbert_ring
