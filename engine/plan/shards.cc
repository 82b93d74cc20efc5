#include "engine/plan/shards.h"

#include <algorithm>

namespace hilbert_ring {

Shards Shards::Make(int workers, const std::vector<ShardRange>& ranges) {
  Shards shards;
  shards.by_rank_.resize(workers);
  shards.rows_.assign(workers, 0);
  for (const ShardRange& range : ranges) {
    if (range.size() == 0) continue;
    if (!shards.ranges_.empty() && shards.ranges_.back().rank == range.rank) {
      shards.ranges_.back().end = range.end;
    } else {
      shards.ranges_.push_back(range);
    }
  }
  for (ShardRange& range : shards.ranges_) {
    range.local_begin = shards.rows_[range.rank];
    shards.rows_[range.rank] += range.size();
    shards.by_rank_[range.rank].push_back(range);
  }
  return shards;
}

const ShardRange& Shards::Find(int64_t slot) const {
  return *(std::upper_bound(ranges_.begin(), ranges_.end(), slot,
                            [](int64_t s, const ShardRange& range) { return s < range.begin; }) -
           1);
}

}  // namespace hilbert_ring
