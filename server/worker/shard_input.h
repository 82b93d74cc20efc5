// Where the rows of a run's shard come from: messages of its stream (message_input.h), memory that
// it shares with the coordinator (run_shard.cc), or files (file_rows.h).
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// For one thread, but for what any thread may ask.
class ShardInput {
 public:
  virtual ~ShardInput() = default;

  // Takes a message of the stream, with its payload beside it, that says of the order or of rows.
  virtual absl::Status Take(const v1::RunRequest& message, const wire::Payload& payload) = 0;

  // Local rows [0, rows()) are there.
  virtual int64_t rows() const = 0;

  // The coordinator has said all: brings what is left. come: told that local rows [0, rows) have
  // come, while others still do; its first error ends this.
  virtual absl::Status Finish(const std::function<absl::Status(int64_t rows)>& come) = 0;

  // Rows are written where they lie by who sends them: nothing passes this process.
  virtual bool in_place() const { return false; }

  virtual int64_t file_bytes() const { return 0; }  // read so far; any thread
};

}  // namespace hilbert_ring::server
