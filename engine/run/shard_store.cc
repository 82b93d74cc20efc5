#include "engine/run/shard_store.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kPartAlignment = 4096;  // of tensors in one piece of memory

int64_t Aligned(int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

}  // namespace

ShardStore::ShardStore(const Plan& plan, int rank) : rows_(plan.shards.Rows(rank)) {
  for (int i = 0; i < kTensorKinds; ++i) {
    row_bytes_[i] = RowBytes(plan.spec, static_cast<TensorKind>(i));
  }
  if (plan.spec.ordering) tokens_ = {static_cast<int64_t*>(nullptr), static_cast<size_t>(rows_)};
}

absl::StatusOr<std::unique_ptr<ShardStore>> ShardStore::Make(Device& device, const Plan& plan,
                                                             int rank) {
  std::unique_ptr<ShardStore> store(new ShardStore(plan, rank));
  const auto allocate = [&](int64_t bytes, std::byte*& data) {
    auto buffer = device.Allocate(bytes);
    if (!buffer.ok()) return buffer.status();
    data = (*buffer)->data();
    store->buffers_.push_back(*std::move(buffer));
    return absl::OkStatus();
  };
  for (int i = 0; i < kTensorKinds; ++i) {
    absl::Status status = allocate(store->rows_ * store->row_bytes_[i], store->tensors_[i]);
    if (!status.ok()) return status;
  }
  std::byte* tokens = nullptr;
  absl::Status status = allocate(static_cast<int64_t>(store->tokens_.size_bytes()), tokens);
  if (!status.ok()) return status;
  store->tokens_ = {reinterpret_cast<int64_t*>(tokens), store->tokens_.size()};
  return store;
}

int64_t ShardStore::SharedBytes(const Plan& plan, int rank) {
  const ShardStore store(plan, rank);
  int64_t bytes = static_cast<int64_t>(store.tokens_.size_bytes());
  for (const int64_t row_bytes : store.row_bytes_) bytes += Aligned(store.rows_ * row_bytes);
  return bytes;
}

std::unique_ptr<ShardStore> ShardStore::Over(std::byte* memory, const Plan& plan, int rank) {
  std::unique_ptr<ShardStore> store(new ShardStore(plan, rank));
  for (int i = 0; i < kTensorKinds; ++i) {
    store->tensors_[i] = memory;
    memory += Aligned(store->rows_ * store->row_bytes_[i]);
  }
  store->tokens_ = {reinterpret_cast<int64_t*>(memory), store->tokens_.size()};
  return store;
}

int64_t ShardStore::bytes() const {
  int64_t bytes = static_cast<int64_t>(tokens_.size_bytes());
  for (const int64_t row_bytes : row_bytes_) bytes += rows_ * row_bytes;
  return bytes;
}

std::byte* ShardStore::Row(TensorKind tensor, int64_t local_row) {
  const int i = static_cast<int>(tensor);
  return tensors_[i] + local_row * row_bytes_[i];
}

const std::byte* ShardStore::Row(TensorKind tensor, int64_t local_row) const {
  return const_cast<ShardStore*>(this)->Row(tensor, local_row);
}

std::span<int64_t> ShardStore::tokens() { return tokens_; }

std::span<const int64_t> ShardStore::tokens() const { return tokens_; }

}  // namespace hilbert_ring
