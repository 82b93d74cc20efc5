#include "engine/plan/shards.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hilbert_ring {

absl::StatusOr<Shards> Shards::Make(int64_t tokens, int workers, std::vector<ShardRange> ranges) {
  if (workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat("workers is ", workers, ", must be at least 1"));
  }
  Shards shards;
  shards.tokens_ = tokens;
  shards.by_rank_.resize(workers);
  shards.rows_.assign(workers, 0);
  int64_t next = 0;
  for (const ShardRange& range : ranges) {
    if (range.begin != next || range.end < range.begin || range.end > tokens) {
      return absl::InvalidArgumentError(absl::StrCat("shards: range [", range.begin, ", ",
                                                     range.end, ") does not follow slot ", next,
                                                     " of ", tokens));
    }
    if (range.rank < 0 || range.rank >= workers) {
      return absl::InvalidArgumentError(
          absl::StrCat("shards: rank ", range.rank, " is not in [0, ", workers, ")"));
    }
    next = range.end;
    if (range.size() == 0) continue;
    if (!shards.ranges_.empty() && shards.ranges_.back().rank == range.rank) {
      shards.ranges_.back().end = range.end;
    } else {
      shards.ranges_.push_back(range);
    }
  }
  if (next != tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards: ranges end at slot ", next, ", tokens is ", tokens));
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
