// The layout of one rank's shard in one piece of host memory: the rows of each tensor, then the
// tokens of its slots if the job has an ordering, and the slots of its queries if they are not
// those of its keys. Processes that share the memory agree on it.
//
//   auto memory = ...;                                   // ShardLayout(plan, rank).bytes()
//   HostShard shard(memory, ShardLayout(plan, rank));
//   std::byte* row = shard.Row(TensorKind::kQ, local_row);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

class ShardLayout {
 public:
  ShardLayout(const Plan& plan, int rank);

  int64_t rows() const { return rows_; }  // of the tensor with the most
  int64_t rows(TensorKind tensor) const { return tensor_rows_[static_cast<int>(tensor)]; }
  std::vector<int64_t> input_rows() const;    // of each input tensor that the job has
  int64_t tokens() const { return tokens_; }  // numbers of the order; 0 without an ordering
  int64_t RowBytes(TensorKind tensor) const { return row_sizes_[tensor]; }

  // Bytes of rows and tokens, without the padding between tensors.
  int64_t net_bytes() const;

  // Bytes of the piece of memory, which is aligned to 64 bytes or more.
  int64_t bytes() const;

  // Offset in the piece of a row's first byte, and of the first token. local_row: up to the
  // tensor's rows.
  int64_t Offset(TensorKind tensor, int64_t local_row) const {
    return begin_[static_cast<int>(tensor)] + local_row * RowBytes(tensor);
  }
  int64_t token_offset() const { return begin_[kTensorKinds]; }

 private:
  int64_t rows_ = 0;
  int64_t tokens_ = 0;
  int64_t tensor_rows_[kTensorKinds] = {};
  RowSizes row_sizes_;
  int64_t begin_[kTensorKinds + 1] = {};  // tensors, then tokens
};

// A view of a shard in memory that the caller keeps. A row has one writing thread at a time.
class HostShard {
 public:
  // memory: layout.bytes() bytes with zero rows of out.
  HostShard(std::byte* memory, const ShardLayout& layout) : memory_(memory), layout_(layout) {}

  const ShardLayout& layout() const { return layout_; }
  int64_t rows() const { return layout_.rows(); }
  int64_t rows(TensorKind tensor) const { return layout_.rows(tensor); }

  // Rows are contiguous; local_row: up to the tensor's rows.
  std::byte* Row(TensorKind tensor, int64_t local_row) const {
    return memory_ + layout_.Offset(tensor, local_row);
  }

  std::span<int64_t> tokens() const {
    return {reinterpret_cast<int64_t*>(memory_ + layout_.token_offset()),
            static_cast<size_t>(layout_.tokens())};
  }

 private:
  std::byte* memory_;
  ShardLayout layout_;
};

}  // namespace hilbert_ring
