#include "engine/run/shard_store.h"

namespace hilbert_ring {

absl::StatusOr<std::unique_ptr<ShardStore>> ShardStore::Make(Device& device, const Plan& plan,
                                                             int rank) {
  std::unique_ptr<ShardStore> store(new ShardStore);
  store->rows_ = plan.shards.Rows(rank);
  for (int i = 0; i < kTensorKinds; ++i) {
    store->row_bytes_[i] = RowBytes(plan.spec, static_cast<TensorKind>(i));
    auto buffer = device.Allocate(store->rows_ * store->row_bytes_[i]);
    if (!buffer.ok()) return buffer.status();
    store->tensors_[i] = *std::move(buffer);
  }
  auto tokens = device.Allocate(
      plan.spec.ordering ? store->rows_ * static_cast<int64_t>(sizeof(int64_t)) : 0);
  if (!tokens.ok()) return tokens.status();
  store->tokens_ = *std::move(tokens);
  return store;
}

int64_t ShardStore::bytes() const {
  int64_t bytes = tokens_->bytes();
  for (const auto& tensor : tensors_) bytes += tensor->bytes();
  return bytes;
}

std::byte* ShardStore::Row(TensorKind tensor, int64_t local_row) {
  const int i = static_cast<int>(tensor);
  return tensors_[i]->data() + local_row * row_bytes_[i];
}

const std::byte* ShardStore::Row(TensorKind tensor, int64_t local_row) const {
  return const_cast<ShardStore*>(this)->Row(tensor, local_row);
}

std::span<int64_t> ShardStore::tokens() {
  return {reinterpret_cast<int64_t*>(tokens_->data()),
          static_cast<size_t>(tokens_->bytes()) / sizeof(int64_t)};
}

std::span<const int64_t> ShardStore::tokens() const {
  return const_cast<ShardStore*>(this)->tokens();
}

}  // namespace hilbert_ring
