// Where the rows of one rank's shard lie in one piece of host memory: each tensor of the job, row
// after row (Q, K, V, out and lse of an attention job), and then the tokens of the shard's slots
// where the job has an ordering. Two processes that share the memory find the same rows in it.
//
//   auto memory = ...;                                   // ShardLayout(plan, rank).bytes()
//   HostShard shard(memory, ShardLayout(plan, rank));
//   std::byte* row = shard.Row(TensorKind::kQ, local_row);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/plan/plan.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

class ShardLayout {
 public:
  ShardLayout(const Plan& plan, int rank);

  int64_t rows() const { return rows_; }
  int64_t tokens() const { return tokens_; }  // as rows(), or 0 for jobs without an ordering
  int64_t RowBytes(TensorKind tensor) const { return row_sizes_[tensor]; }

  // Of all rows and tokens, without what lies between them.
  int64_t net_bytes() const;

  // Of the piece of memory, which is aligned to 64 bytes or more.
  int64_t bytes() const;

  // Of the row's first byte, and of the first token, in the piece. local_row in [0, rows()].
  int64_t Offset(TensorKind tensor, int64_t local_row) const {
    return begin_[static_cast<int>(tensor)] + local_row * RowBytes(tensor);
  }
  int64_t token_offset() const { return begin_[kTensorKinds]; }

 private:
  int64_t rows_ = 0;
  int64_t tokens_ = 0;
  RowSizes row_sizes_;
  int64_t begin_[kTensorKinds + 1] = {};  // of each tensor, then of the tokens
};

// A shard in memory that somebody else holds for as long as this is used. Each row is written by
// one thread at a time.
class HostShard {
 public:
  // memory: layout.bytes() bytes, whose rows of out are zero.
  HostShard(std::byte* memory, const ShardLayout& layout) : memory_(memory), layout_(layout) {}

  const ShardLayout& layout() const { return layout_; }
  int64_t rows() const { return layout_.rows(); }

  // Rows lie one after the other; local_row in [0, rows()].
  std::byte* Row(TensorKind tensor, int64_t local_row) const {
    return memory_ + layout_.Offset(tensor, local_row);
  }

  // Of the shard's slots; empty for jobs without an ordering.
  std::span<int64_t> tokens() const {
    return {reinterpret_cast<int64_t*>(memory_ + layout_.token_offset()),
            static_cast<size_t>(layout_.tokens())};
  }

 private:
  std::byte* memory_;
  ShardLayout layout_;
};

}  // namespace hilbert_ring
