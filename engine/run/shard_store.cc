#include "engine/run/shard_store.h"

#include <cstring>

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
  store->device_tokens_ = reinterpret_cast<int64_t*>(tokens);
  if (device.host_memory()) {
    store->tokens_ = {store->device_tokens_, store->tokens_.size()};
  } else {
    store->device_ = &device;
    store->tokens_on_host_.resize(store->tokens_.size());
    store->tokens_ = store->tokens_on_host_;
  }
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
  store->device_tokens_ = reinterpret_cast<int64_t*>(memory);
  store->tokens_ = {store->device_tokens_, store->tokens_.size()};
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

absl::Status ShardStore::Write(TensorKind tensor, int64_t local_row, int64_t rows,
                               const void* from) {
  std::byte* const to = Row(tensor, local_row);
  const int64_t bytes = rows * row_bytes_[static_cast<int>(tensor)];
  if (device_ != nullptr) return device_->CopyIn(to, from, bytes);
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status ShardStore::WriteRows(TensorKind tensor, std::span<const int64_t> local_rows,
                                   const void* from) {
  const int64_t row_bytes = row_bytes_[static_cast<int>(tensor)];
  if (device_ != nullptr) {
    return device_->CopyRowsIn(
        {.to = Row(tensor, 0), .from = from, .rows = local_rows, .row_bytes = row_bytes});
  }
  const auto* bytes = static_cast<const std::byte*>(from);
  for (const int64_t row : local_rows) {
    std::memcpy(Row(tensor, row), bytes, static_cast<size_t>(row_bytes));
    bytes += row_bytes;
  }
  return absl::OkStatus();
}

absl::Status ShardStore::Read(TensorKind tensor, int64_t local_row, int64_t rows, void* to) const {
  const std::byte* const from = Row(tensor, local_row);
  const int64_t bytes = rows * row_bytes_[static_cast<int>(tensor)];
  if (device_ != nullptr) return device_->CopyOut(to, from, bytes);
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status ShardStore::WriteTokens(int64_t local_row, int64_t count, const void* from) {
  if (count == 0) return absl::OkStatus();
  const size_t bytes = static_cast<size_t>(count) * sizeof(int64_t);
  std::memcpy(tokens_.data() + local_row, from, bytes);
  if (device_ == nullptr) return absl::OkStatus();
  return device_->CopyIn(device_tokens_ + local_row, from, static_cast<int64_t>(bytes));
}

std::span<int64_t> ShardStore::tokens() { return tokens_; }

std::span<const int64_t> ShardStore::tokens() const { return tokens_; }

}  // namespace hilbert_ring
