#include "engine/plan/shard_layout.h"

#include <algorithm>

namespace hilbert_ring {
namespace {

constexpr int64_t kPartAlignment = 4096;  // bytes; a page

int64_t Aligned(int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

}  // namespace

ShardLayout::ShardLayout(const Plan& plan, int rank) : row_sizes_(plan.rows) {
  const int64_t slots = plan.shards.Rows(rank);
  if (plan.spec.ordering) tokens_ = slots;
  rows_ = slots;
  if (plan.rectangle) {
    const int64_t queries = plan.rectangle->queries.Rows(rank);
    if (QueriesCarrySlots(plan.spec)) tokens_ += queries;
    rows_ = std::max(slots, queries);
  }
  for (int i = 0; i < kTensorKinds; ++i) {
    const auto tensor = static_cast<TensorKind>(i);
    tensor_rows_[i] = plan.ShardsOf(tensor).Rows(rank);
    if (tensor == TensorKind::kBiasCoords) {
      tensor_rows_[i] = !row_sizes_.Has(tensor)          ? 0
                        : HasQueryCoordinates(plan.spec) ? slots + tensor_rows_[i]
                                                         : slots;
    }
    begin_[i + 1] = begin_[i] + Aligned(tensor_rows_[i] * RowBytes(tensor));
  }
}

std::vector<int64_t> ShardLayout::input_rows() const {
  std::vector<int64_t> rows;
  for (const TensorKind tensor : kInputKinds) {
    if (row_sizes_.Has(tensor)) rows.push_back(this->rows(tensor));
  }
  return rows;
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
