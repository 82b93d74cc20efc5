// How far the rows of a shard have come, as a prefix: what compute may begin with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hilbert_ring::server {

// Counts rows by blocks of local rows, so that rows may come in any order. Pure.
class ArrivedRows {
 public:
  // tensors: whose rows are waited for; 1 to 16. unsent: local rows that count as arrived.
  ArrivedRows(int64_t rows, int tensors, std::span<const int64_t> unsent = {});

  // Local rows [first, first + count) of one of the tensors have come; each comes once.
  void Add(int64_t first, int64_t count);

  // Local rows [0, prefix()) of all tensors are there, in whole blocks.
  int64_t prefix() const { return prefix_; }

 private:
  int64_t rows_;
  int64_t prefix_ = 0;
  std::vector<int32_t> missing_;  // [blocks]: rows of all tensors together
};

}  // namespace hilbert_ring::server
