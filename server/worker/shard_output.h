// Where the outputs of a run go: into messages of its stream (message_output.h), memory that it
// shares with the coordinator (run_shard.cc), or files (file_rows.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/worker/run_replies.h"

namespace hilbert_ring::server {

// For one thread at a time, but for what any thread may ask.
class ShardOutput {
 public:
  virtual ~ShardOutput() = default;

  // Outputs of local rows [0, rows_final) are final: those that it has not had yet go where they
  // belong. Each call has more rows. options: of a message that says so.
  virtual absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) = 0;

  // All outputs have been put.
  virtual absl::Status Finish(RunReplies& /*replies*/) { return absl::OkStatus(); }

  virtual void AddTo(v1::WorkerReport& /*report*/) const {}

  // Outputs leave from where they are made: to put them waits for nobody.
  virtual bool in_place() const { return false; }

  // The run keeps its lane until its outputs have left.
  virtual bool holds_lane() const { return true; }

  virtual int64_t file_bytes() const { return 0; }  // written so far; any thread
};

}  // namespace hilbert_ring::server
