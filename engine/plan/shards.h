// Which worker owns which slots.
//
// A shard is a list of slot ranges: one as a rule, several where causal work is balanced by
// mirroring (a rank's share of the start of a long segment and as much of its end). On a worker its
// ranges lie one after the other, in slot order; a slot's place in them is its local row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct ShardRange {
  int64_t begin = 0, end = 0;  // slots
  int rank = 0;
  int64_t local_begin = 0;  // local row of `begin`
  int64_t size() const { return end - begin; }
  int64_t LocalRow(int64_t slot) const { return local_begin + slot - begin; }
};

class Shards {
 public:
  // Ranges in slot order that tile the slots; ranks in [0, workers). local_begin is filled in here.
  // Neighbours of one rank are joined; empty ranges are dropped.
  static Shards Make(int workers, const std::vector<ShardRange>& ranges);

  int workers() const { return static_cast<int>(by_rank_.size()); }
  const std::vector<ShardRange>& ranges() const { return ranges_; }

  // Of one rank, in slot order.
  const std::vector<ShardRange>& OfRank(int rank) const { return by_rank_[rank]; }
  int64_t Rows(int rank) const { return rows_[rank]; }

  // The range that holds a slot. O(log ranges).
  const ShardRange& Find(int64_t slot) const;

 private:
  std::vector<ShardRange> ranges_;
  std::vector<std::vector<ShardRange>> by_rank_;
  std::vector<int64_t> rows_;
};

// Rows of a worker stay within this factor of tokens / workers (and one row).
inline constexpr double kMaxRowsOverMean = 1.1;

// Cuts the slots among the workers. Where mirror_length > 0, segments of that length (per sequence)
// that lie over several workers are mirrored; cuts move to segment boundaries where that saves
// exchange.
Shards CutShards(const JobSpec& spec, int workers, int64_t mirror_length);

}  // namespace hilbert_ring
