// The prefix of a shard's rows that have come, with which compute may begin.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hilbert_ring::server {

class ArrivedRows {  // rows may come in any order: counts them by blocks of local rows
 public:
  // rows: of each of 1 to 16 tensors. unsent: local rows that count as arrived, of all of them.
  explicit ArrivedRows(std::span<const int64_t> rows, std::span<const int64_t> unsent = {});

  // Local rows [first, first + count) of a tensor have come, each once.
  void Add(int64_t first, int64_t count);

  // Local rows [0, prefix()) of all tensors are there, in whole blocks. A tensor may have fewer.
  int64_t prefix() const { return prefix_; }

 private:
  int64_t rows_;
  int64_t prefix_ = 0;
  std::vector<int32_t> missing_;  // by block, all tensors together
};

}  // namespace hilbert_ring::server
