// Rows and outputs in messages.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/arrived_rows.h"
#include "server/shard/job_shape.h"
#include "server/shard/output_rows.h"
#include "server/worker/shard_ways.h"
#include "wire/payload.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

// Writes a part of the order, or rows of coordinates, to the store. Returns its tokens or rows.
// INVALID_ARGUMENT outside the shard.
absl::StatusOr<int64_t> PlaceOrder(const v1::OrderPart& part, const wire::Payload& tokens,
                                   ShardStore& store);

// Outputs that the client has from earlier executions. tokens: of the job.
Delivered DeliveredOf(const v1::RunOpen& open, int64_t tokens);

class MessageWay final : public ShardWay {
 public:
  // The store, of the rank's shard, and the plan outlive it.
  MessageWay(const JobShape& shape, const Plan& plan, int rank, ShardStore& store,
             const v1::RunOpen& open);

  absl::StatusOr<int64_t> Take(const v1::RunRequest& message,
                               const wire::Payload& payload) override;

  // INVALID_ARGUMENT unless all rows and the order have come.
  absl::Status FinishInput() override;

  absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) override;

 private:
  // INVALID_ARGUMENT for misshapen parts or rows outside the shard; DATA_LOSS (CHECKSUM_MISMATCH).
  absl::Status Place(const v1::ShardRows& rows, const wire::Payload& payload);

  const RowSizes rows_;
  ShardStore& store_;
  ArrivedRows arrived_;
  int64_t ordered_ = 0;      // tokens of the order and rows of coordinates
  std::vector<char> whole_;  // a payload for a device
  OutputRows outputs_;
  wire::SlicePool pool_;  // the transport may hold a message longer than the run holds its shard
};

}  // namespace hilbert_ring::server
