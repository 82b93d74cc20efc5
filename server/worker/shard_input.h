// A source of rows for a run's shard: messages (message_input.h), memory shared with the
// coordinator (run_shard.cc), or files (file_rows.h).
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class ShardInput {  // not thread-safe, except file_bytes
 public:
  virtual ~ShardInput() = default;

  virtual absl::Status Take(const v1::RunRequest& message, const wire::Payload& payload) = 0;

  virtual int64_t rows() const = 0;  // local rows [0, rows()) are there

  // After the coordinator's last message: brings the other rows. come: called when local rows
  // [0, rows) are there; its first error ends this.
  virtual absl::Status Finish(const std::function<absl::Status(int64_t rows)>& come) = 0;

  // Returns whether the coordinator writes rows to their places.
  virtual bool in_place() const { return false; }

  virtual int64_t file_bytes() const { return 0; }  // read so far
};

}  // namespace hilbert_ring::server
