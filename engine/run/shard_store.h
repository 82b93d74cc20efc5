// One rank's shard of a job in device memory: Q, K, V, out, lse, and its part of the order.
//
//   auto store = ShardStore::Make(device, plan, rank).value();   // all of the shard's memory
//   store->Row(TensorKind::kQ, local_row);                       // rows are placed as they arrive
//   Execute(...);                                                // engine/run/executor.h
//   store->Row(TensorKind::kOut, local_row);                     // and leave when they are final
//
// Or over memory that somebody else holds, so that two processes share one shard:
//
//   auto store = ShardStore::Over(memory, plan, rank);           // SharedBytes(plan, rank) of it
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {

// Each row is written by one thread at a time.
class ShardStore {
 public:
  // RESOURCE_EXHAUSTED when the device's memory does not suffice.
  static absl::StatusOr<std::unique_ptr<ShardStore>> Make(Device& device, const Plan& plan,
                                                          int rank);

  // Over memory of SharedBytes, aligned to 64 bytes, whose rows of out are zero; it outlives the
  // store.
  static int64_t SharedBytes(const Plan& plan, int rank);
  static std::unique_ptr<ShardStore> Over(std::byte* memory, const Plan& plan, int rank);

  int64_t rows() const { return rows_; }
  int64_t bytes() const;  // of tensors and tokens

  // Rows lie one after the other; local_row in [0, rows()).
  std::byte* Row(TensorKind tensor, int64_t local_row);
  const std::byte* Row(TensorKind tensor, int64_t local_row) const;

  // Tokens of the shard's slots, for jobs with an ordering; empty otherwise. Filled by the owner of
  // the store before Execute.
  std::span<int64_t> tokens();
  std::span<const int64_t> tokens() const;

 private:
  ShardStore(const Plan& plan, int rank);
  int64_t rows_ = 0;
  int64_t row_bytes_[kTensorKinds] = {};
  std::byte* tensors_[kTensorKinds] = {};
  std::span<int64_t> tokens_;                     // its size is known from the start
  std::vector<std::unique_ptr<Buffer>> buffers_;  // what the store allocated itself
};

}  // namespace hilbert_ring
