// Rows that come from the coordinator, checked and written at their places in the shard.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/arrived_rows.h"

namespace hilbert_ring::server {

class ShardRows {
 public:
  // Both must outlive it.
  ShardRows(const Plan& plan, ShardStore& store)
      : plan_(plan), store_(store), arrived_(store.rows()) {}

  // INVALID_ARGUMENT for parts or rows that are misshapen or out of the shard; DATA_LOSS
  // (CHECKSUM_MISMATCH).
  absl::Status Place(const v1::OrderPart& part);
  absl::Status Place(const v1::ShardRows& rows);

  // Local rows [0, prefix()) are there.
  int64_t prefix() const { return arrived_.prefix(); }

  // INVALID_ARGUMENT unless all rows and the whole order have come.
  absl::Status CheckComplete() const;

 private:
  const Plan& plan_;
  ShardStore& store_;
  ArrivedRows arrived_;
  int64_t ordered_ = 0;            // tokens of the order
  int64_t q_ = 0, k_ = 0, v_ = 0;  // rows
};

}  // namespace hilbert_ring::server
