// The prefix of a shard's rows that have come, with which compute may begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hilbert_ring::server {

class ArrivedRows {  // rows may come in any order: counts them by blocks of local rows
 public:
  // tensors: to wait for; 1 to 16. unsent: local rows that count as arrived.
  ArrivedRows(int64_t rows, int tensors, std::span<const int64_t> unsent = {});

  // Local rows [first, first + count) of a tensor have come, each once.
  void Add(int64_t first, int64_t count);

  // Local rows [0, prefix()) of all tensors are there, in whole blocks.
  int64_t prefix() const { return prefix_; }

 private:
  int64_t rows_;
  int64_t prefix_ = 0;
  std::vector<int32_t> missing_;  // by block, all tensors together
};

}  // namespace hilbert_ring::server
