// Outputs that leave in messages.
#pragma once

#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/output_rows.h"
#include "server/worker/run_work.h"
#include "server/worker/shard_output.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

// Outputs that the client has from earlier executions. tokens: of the job.
Delivered DeliveredOf(const v1::RunOpen& open, int64_t tokens);

class MessageOutput final : public ShardOutput {
 public:
  // References outlive it.
  MessageOutput(const RunWork& work, const ShardStore& store, const v1::RunOpen& open);

  absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) override;

 private:
  OutputRows rows_;
  wire::SlicePool pool_;  // the transport may hold a message longer than the run holds its shard
};

}  // namespace hilbert_ring::server
