#include "engine/plan/shard_layout.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kPartAlignment = 4096;  // bytes; a page

int64_t Aligned(int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

}  // namespace

ShardLayout::ShardLayout(const Plan& plan, int rank)
    : rows_(plan.shards.Rows(rank)),
      tokens_(plan.spec.ordering ? rows_ : 0),
      row_sizes_(plan.rows) {
  if (plan.rectangle && QueriesCarrySlots(plan.spec)) {
    tokens_ += plan.rectangle->queries.Rows(rank);
  }
  for (int i = 0; i < kTensorKinds; ++i) {
    const auto tensor = static_cast<TensorKind>(i);
    tensor_rows_[i] = plan.ShardsOf(tensor).Rows(rank);
    begin_[i + 1] = begin_[i] + Aligned(tensor_rows_[i] * RowBytes(tensor));
  }
}

int64_t ShardLayout::net_bytes() const {
  int64_t bytes = tokens_ * static_cast<int64_t>(sizeof(int64_t));
  for (int i = 0; i < kTensorKinds; ++i)
    bytes += tensor_rows_[i] * RowBytes(static_cast<TensorKind>(i));
  return bytes;
}

int64_t ShardLayout::bytes() const {
  return token_offset() + tokens_ * static_cast<int64_t>(sizeof(int64_t));
}

}  // namespace hilbert_ring
