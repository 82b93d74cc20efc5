// One rank's shard of a job in device memory: the job's tensors (Q, K, V, out and lse of an
// attention job), and its part of the order.
//
//   auto store = ShardStore::Make(device, plan, rank).value();   // all of the shard's memory
//   store->WriteTokens(0, tokens);                               // the order, where there is one
//   store->Write(TensorKind::kQ, local_row, rows, bytes);        // rows are placed as they arrive
//   Execute(...);                                                // engine/run/executor.h
//   store->Read(TensorKind::kOut, local_row, rows, bytes);       // and leave when they are final
//
// Or over host memory that somebody else holds, so that two processes share one shard:
//
//   auto store = ShardStore::Over(HostShard(memory, ShardLayout(plan, rank)));
//
// Where the shard lies in host memory, Row() and tokens() reach it without a copy.
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
  // RESOURCE_EXHAUSTED when the device's memory does not suffice. The device outlives the store.
  static absl::StatusOr<std::unique_ptr<ShardStore>> Make(Device& device, const Plan& plan,
                                                          int rank);

  static std::unique_ptr<ShardStore> Over(const HostShard& shard);

  const ShardLayout& layout() const { return layout_; }
  int64_t rows() const { return layout_.rows(); }
  int64_t bytes() const { return layout_.net_bytes(); }

  // Whether the host may read and write at Row().
  bool host_memory() const { return device_ == nullptr; }

  // Rows lie one after the other; local_row in [0, rows()). An address of the device.
  std::byte* Row(TensorKind tensor, int64_t local_row);
  const std::byte* Row(TensorKind tensor, int64_t local_row) const;

  // Host memory to rows and back; `from` and `to` hold dense rows. Errors of the device's copies.
  absl::Status Write(TensorKind tensor, int64_t local_row, int64_t rows, const void* from);
  absl::Status WriteRows(TensorKind tensor, std::span<const int64_t> local_rows, const void* from);
  absl::Status Read(TensorKind tensor, int64_t local_row, int64_t rows, void* to) const;

  // Tokens of the shard's slots, for jobs with an ordering; empty otherwise. In host memory always;
  // written through this span only where host_memory(). All are there before their rows are
  // computed. `from` holds int64 and need not be aligned.
  std::span<int64_t> tokens();
  std::span<const int64_t> tokens() const;
  absl::Status WriteTokens(int64_t local_row, int64_t count, const void* from);

  // The same tokens in the device's memory.
  const int64_t* device_tokens() const { return device_tokens_; }

 private:
  explicit ShardStore(const ShardLayout& layout) : layout_(layout) {}

  Device* device_ = nullptr;  // null: host memory
  const ShardLayout layout_;  // of sizes; each tensor may lie for itself
  std::byte* tensors_[kTensorKinds] = {};
  std::span<int64_t> tokens_;
  int64_t* device_tokens_ = nullptr;
  std::vector<int64_t> tokens_on_host_;           // where tokens_ cannot lie in the device's memory
  std::vector<std::unique_ptr<Buffer>> buffers_;  // what the store allocated itself
};

}  // namespace hilbert_ring
