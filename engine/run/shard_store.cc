#include "engine/run/shard_store.h"

#include <cstring>
#include <utility>

#include "engine/base/return_if_error.h"

namespace hilbert_ring {
absl::StatusOr<std::unique_ptr<ShardStore>> ShardStore::Make(Device& device, const Plan& plan,
                                                             int rank) {
  const ShardLayout layout(plan, rank);
  if (device.host_memory()) {
    ASSIGN_OR_RETURN(auto piece, device.Allocate(layout.bytes()));
    std::unique_ptr<ShardStore> store = Over(HostShard(piece->data(), layout));
    store->buffers_.push_back(std::move(piece));
    return store;
  }
  std::unique_ptr<ShardStore> store(new ShardStore(layout));
  store->device_ = &device;
  const auto allocate = [&](int64_t bytes, std::byte*& data) {
    ASSIGN_OR_RETURN(auto buffer, device.Allocate(bytes));
    data = buffer->data();
    store->buffers_.push_back(std::move(buffer));
    return absl::OkStatus();
  };
  for (int i = 0; i < kTensorKinds; ++i) {
    const int64_t bytes =
        layout.rows(static_cast<TensorKind>(i)) * layout.RowBytes(static_cast<TensorKind>(i));
    if (bytes > 0) RETURN_IF_ERROR(allocate(bytes, store->tensors_[i]));
  }
  std::byte* tokens = nullptr;
  RETURN_IF_ERROR(allocate(layout.tokens() * static_cast<int64_t>(sizeof(int64_t)), tokens));
  store->device_tokens_ = reinterpret_cast<int64_t*>(tokens);
  store->tokens_on_host_.resize(static_cast<size_t>(layout.tokens()));
  store->tokens_ = store->tokens_on_host_;
  return store;
}

std::unique_ptr<ShardStore> ShardStore::Over(const HostShard& shard) {
  std::unique_ptr<ShardStore> store(new ShardStore(shard.layout()));
  for (int i = 0; i < kTensorKinds; ++i) {
    store->tensors_[i] = shard.Row(static_cast<TensorKind>(i), 0);
  }
  store->tokens_ = shard.tokens();
  store->device_tokens_ = store->tokens_.data();
  return store;
}

int64_t ShardStore::bytes() const {
  if (device_ == nullptr) return layout_.net_bytes();  // no page between tensors is taken
  int64_t bytes = 0;
  for (const std::unique_ptr<Buffer>& buffer : buffers_) bytes += buffer->bytes();
  return bytes;
}

std::byte* ShardStore::Row(TensorKind tensor, int64_t local_row) {
  const int i = static_cast<int>(tensor);
  return tensors_[i] + local_row * layout_.RowBytes(tensor);
}

const std::byte* ShardStore::Row(TensorKind tensor, int64_t local_row) const {
  return const_cast<ShardStore*>(this)->Row(tensor, local_row);
}

absl::Status ShardStore::Write(TensorKind tensor, int64_t local_row, int64_t rows,
                               const void* from) {
  std::byte* const to = Row(tensor, local_row);
  const int64_t bytes = rows * layout_.RowBytes(tensor);
  if (device_ != nullptr) return device_->CopyIn(to, from, bytes);
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status ShardStore::WriteRows(TensorKind tensor, std::span<const int64_t> local_rows,
                                   const void* from) {
  const int64_t row_bytes = layout_.RowBytes(tensor);
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
  const int64_t bytes = rows * layout_.RowBytes(tensor);
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
