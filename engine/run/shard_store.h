// A rank's shard of a job in device memory: the job's tensors (Q, K, V, out and lse of an attention
// job), and its part of the order.
//
//   auto store = ShardStore::Make(device, plan, rank).value();   // host memory: in one piece
//   store->WriteTokens(0, tokens);                               // the order, if the job has one
//   store->Write(TensorKind::kQ, local_row, rows, bytes);        // as rows arrive
//   Execute(...);                                                // engine/run/executor.h
//   store->Read(TensorKind::kOut, local_row, rows, bytes);       // once they are final
//
// Or over host memory that the caller keeps, so that two processes share a shard:
//
//   auto store = ShardStore::Over(HostShard(memory, ShardLayout(plan, rank)));
//
// Row() and tokens() of a shard in host memory need no copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/plan/shard_layout.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

// Each row is written by one thread at a time.
class ShardStore {
 public:
  // The device outlives the store. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ShardStore>> Make(Device& device, const Plan& plan,
                                                          int rank);

  static std::unique_ptr<ShardStore> Over(const HostShard& shard);

  const ShardLayout& layout() const { return layout_; }
  int64_t rows() const { return layout_.rows(); }  // of the tensor with the most
  int64_t rows(TensorKind tensor) const { return layout_.rows(tensor); }
  int64_t bytes() const;  // of rows and tokens; on a device: as allocated

  // Returns whether Row() is a host address.
  bool host_memory() const { return device_ == nullptr; }

  // Rows are contiguous; local_row: up to the tensor's rows. An address of the device.
  std::byte* Row(TensorKind tensor, int64_t local_row);
  const std::byte* Row(TensorKind tensor, int64_t local_row) const;

  // Copy dense rows from and to host memory. Errors: the device's copies.
  absl::Status Write(TensorKind tensor, int64_t local_row, int64_t rows, const void* from);
  absl::Status WriteRows(TensorKind tensor, std::span<const int64_t> local_rows, const void* from);
  absl::Status Read(TensorKind tensor, int64_t local_row, int64_t rows, void* to) const;

  // Host memory with the numbers of the order: the tokens of the shard's slots, then the slots of
  // a rectangle's queries (ShardLayout); empty without an ordering. Write through the
  // span only if host_memory(), and before rows are computed. `from`: unaligned int64.
  std::span<int64_t> tokens();
  std::span<const int64_t> tokens() const;
  absl::Status WriteTokens(int64_t local_row, int64_t count, const void* from);

  const int64_t* device_tokens() const { return device_tokens_; }

 private:
  explicit ShardStore(const ShardLayout& layout) : layout_(layout) {}

  Device* device_ = nullptr;  // null: host memory
  const ShardLayout layout_;  // on a device sizes only
  std::byte* tensors_[kTensorKinds] = {};
  std::span<int64_t> tokens_;
  int64_t* device_tokens_ = nullptr;
  std::vector<int64_t> tokens_on_host_;           // of a device whose memory is not the host's
  std::vector<std::unique_ptr<Buffer>> buffers_;  // allocated by Make
};

}  // namespace hilbert_ring
