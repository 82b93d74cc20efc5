// Workers' parts of an encoder's pooled states, as they came.
//
//   parts.Add(rank, state, part);
//   parts.WrongOf(rank, state, rows);   // they are not those of its rows
//   parts.AddTo(state, pool);
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/model/files/pooling.h"
#include "engine/model/files/slide_rows.h"
#include "engine/plan/shards.h"

namespace hilbert_ring::server {

// Of each slide, those that lie in these ranges and are summed.
std::vector<int64_t> PooledRowsOf(const SlideRows& slides, Pooling pooling,
                                  std::span<const ShardRange> ranges);

// Used by several threads at once.
class PooledParts {
 public:
  // most_numbers: of a rank, rows and sums.
  explicit PooledParts(int64_t most_numbers) : most_numbers_(most_numbers) {}

  // INTERNAL: more numbers than there may be.
  absl::Status Add(int rank, int64_t state, PooledPart part);

  // What is wrong with a rank's parts, which are to be of these rows of each slide; empty: nothing.
  std::string WrongOf(int rank, int64_t state, std::span<const int64_t> rows) const;

  // In the order of the ranks, so that the same parts give the same bits. Errors of SlidePool::Add.
  absl::Status AddTo(int64_t state, SlidePool& pool) const;

  void Clear();

 private:
  const int64_t most_numbers_;
  mutable Mutex mutex_;
  std::map<int, int64_t> numbers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int64_t, int>, std::vector<PooledPart>> parts_
      ABSL_GUARDED_BY(mutex_);  // by state and rank
};

}  // namespace hilbert_ring::server
