// A sink of a run's outputs: messages (message_output.h), memory shared with the coordinator
// (run_shard.cc), or files (file_rows.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/worker/run_replies.h"

namespace hilbert_ring::server {

class ShardOutput {  // used by one thread at a time, except file_bytes
 public:
  virtual ~ShardOutput() = default;

  // Takes new outputs up to local row rows_final, which grows. options: of the message.
  virtual absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) = 0;

  virtual absl::Status Finish(RunReplies& /*replies*/) { return absl::OkStatus(); }

  virtual void AddTo(v1::WorkerReport& /*report*/) const {}

  // Returns whether Put does not wait: the coordinator reads outputs in their places.
  virtual bool in_place() const { return false; }

  // Returns whether the run keeps its lane until its outputs have left.
  virtual bool holds_lane() const { return true; }

  virtual int64_t file_bytes() const { return 0; }  // written so far
};

}  // namespace hilbert_ring::server
