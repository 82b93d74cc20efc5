// How far the rows of a shard have come, as a prefix: what compute may begin with.
#pragma once

#include <cstdint>
#include <vector>

namespace hilbert_ring::server {

// Counts rows by blocks of local rows, so that rows may come in any order. Pure.
class ArrivedRows {
 public:
  explicit ArrivedRows(int64_t rows);

  // Local rows [first, first + count) of one of Q, K and V have come; each comes once.
  void Add(int64_t first, int64_t count);

  // Local rows [0, prefix()) of all three tensors are there, in whole blocks.
  int64_t prefix() const { return prefix_; }

 private:
  int64_t rows_;
  int64_t prefix_ = 0;
  std::vector<int32_t> missing_;  // [blocks]: rows of the three tensors together
};

}  // namespace hilbert_ring::server
