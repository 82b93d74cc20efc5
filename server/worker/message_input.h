// Rows that come in messages: checks them and writes them to their places in the shard.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/arrived_rows.h"
#include "server/shard/job_shape.h"
#include "server/worker/shard_input.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class MessageInput final : public ShardInput {
 public:
  // The store, of the rank's shard, outlives it.
  MessageInput(const JobShape& shape, const Plan& plan, int rank, ShardStore& store);

  absl::Status Take(const v1::RunRequest& message, const wire::Payload& payload) override;
  int64_t rows() const override { return arrived_.prefix(); }

  // INVALID_ARGUMENT unless all rows and the order have come.
  absl::Status Finish(const std::function<absl::Status(int64_t rows)>& come) override;

  // INVALID_ARGUMENT for misshapen parts or rows outside the shard; DATA_LOSS (CHECKSUM_MISMATCH).
  absl::Status Place(const v1::OrderPart& part, const wire::Payload& tokens);
  absl::Status Place(const v1::ShardRows& rows, const wire::Payload& payload);

 private:
  const void* Whole(const wire::Payload& payload);

  const RowSizes rows_;
  ShardStore& store_;
  ArrivedRows arrived_;
  int64_t ordered_ = 0;      // tokens of the order
  std::vector<char> whole_;  // a payload for a device
};

}  // namespace hilbert_ring::server
