// The slots that each worker owns: one range, or several if causal work is mirrored (a share of a
// long segment's start and as much of its end). A worker stores its ranges contiguously in slot
// order; a slot's place among them is its local row.
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
  // Ranges tile the slots in order. Sets local_begin, joins neighbours of a rank, drops empty
  // ranges.
  static Shards Make(int workers, const std::vector<ShardRange>& ranges);

  int workers() const { return static_cast<int>(by_rank_.size()); }
  const std::vector<ShardRange>& ranges() const { return ranges_; }

  // A rank's ranges in slot order.
  const std::vector<ShardRange>& OfRank(int rank) const { return by_rank_[rank]; }
  int64_t Rows(int rank) const { return rows_[rank]; }

  // The range that holds a slot. O(log ranges).
  const ShardRange& Find(int64_t slot) const;

 private:
  std::vector<ShardRange> ranges_;
  std::vector<std::vector<ShardRange>> by_rank_;
  std::vector<int64_t> rows_;
};

// Bounds a worker's rows: this factor times tokens / workers, plus one.
inline constexpr double kMaxRowsOverMean = 1.1;

// Mirrors segments of mirror_length (if > 0) that lie over several workers. Cuts move to segment
// boundaries if that saves exchange.
Shards CutShards(const JobSpec& spec, int workers, int64_t mirror_length);

}  // namespace hilbert_ring
