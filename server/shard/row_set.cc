#include "server/shard/row_set.h"

#include <algorithm>
#include <iterator>

namespace hilbert_ring::server {

bool RowSet::Add(int64_t begin, int64_t end) {
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < end) return false;
  if (next != ranges_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second > begin) return false;
    if (previous->second == begin) {
      count_ += end - begin;
      previous->second = end;
      if (next != ranges_.end() && next->first == end) {
        previous->second = next->second;
        ranges_.erase(next);
      }
      return true;
    }
  }
  count_ += end - begin;
  if (next != ranges_.end() && next->first == end) {
    end = next->second;
    next = ranges_.erase(next);
  }
  ranges_.emplace_hint(next, begin, end);
  return true;
}

void RowSet::Remove(int64_t begin, int64_t end) {
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin()) --range;
  while (range != ranges_.end() && range->first < end) {
    const auto [first, last] = *range;
    if (last <= begin) {
      ++range;
      continue;
    }
    range = ranges_.erase(range);
    if (first < begin) ranges_.emplace_hint(range, first, begin);
    if (last > end) ranges_.emplace_hint(range, end, last);
    count_ -= std::min(last, end) - std::max(first, begin);
  }
}

RowSpan RowSet::GapFrom(int64_t row) const {
  auto next = ranges_.upper_bound(row);
  if (next != ranges_.begin() && std::prev(next)->second > row) row = std::prev(next)->second;
  return {row, next == ranges_.end() ? size_ : next->first};
}

}  // namespace hilbert_ring::server
