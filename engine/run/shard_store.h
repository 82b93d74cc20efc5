// One rank's shard of a job in device memory: Q, K, V, out, lse, and its part of the order.
//
//   auto store = ShardStore::Make(device, plan, rank).value();   // all of the shard's memory
//   store->Row(TensorKind::kQ, local_row);                       // rows are placed as they arrive
//   Execute(...);                                                // engine/run/executor.h
//   store->Row(TensorKind::kOut, local_row);                     // and leave when they are final
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

// Written by one thread at a time per tensor; Execute needs it alone.
class ShardStore {
 public:
  // RESOURCE_EXHAUSTED when the device's memory does not suffice.
  static absl::StatusOr<std::unique_ptr<ShardStore>> Make(Device& device, const Plan& plan,
                                                          int rank);

  int64_t rows() const { return rows_; }
  int64_t bytes() const;  // allocated

  // Rows lie one after the other; local_row in [0, rows()).
  std::byte* Row(TensorKind tensor, int64_t local_row);
  const std::byte* Row(TensorKind tensor, int64_t local_row) const;

  // Tokens of the shard's slots, for jobs with an ordering; empty otherwise. Filled by the owner of
  // the store before Execute.
  std::span<int64_t> tokens();
  std::span<const int64_t> tokens() const;

 private:
  ShardStore() = default;
  int64_t rows_ = 0;
  int64_t row_bytes_[kTensorKinds] = {};
  std::unique_ptr<Buffer> tensors_[kTensorKinds];
  std::unique_ptr<Buffer> tokens_;
};

}  // namespace hilbert_ring
