// A shard in memory that coordinator and worker share (server/shard/shared_memory.h): the
// coordinator writes rows there, and reads outputs there.
#pragma once

#include <algorithm>

#include "server/worker/input_source.h"
#include "server/worker/output_sink.h"

namespace hilbert_ring::server {

class SharedInput final : public InputSource {
 public:
  absl::Status Take(const v1::RunRequest& message, const wire::Payload& /*payload*/) override {
    if (!message.has_arrived()) return absl::InvalidArgumentError("expected RowsArrived");
    rows_ = std::max(rows_, message.arrived().rows());
    return absl::OkStatus();
  }
  int64_t rows() const override { return rows_; }
  absl::Status Finish(const std::function<absl::Status(int64_t)>& /*come*/) override {
    return absl::OkStatus();
  }
  bool in_place() const override { return true; }

 private:
  int64_t rows_ = 0;
};

class SharedOutput final : public OutputSink {
 public:
  absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) override {
    v1::RunResponse response;
    response.mutable_final()->set_rows(rows_final);
    return replies.Write(response, options);
  }
  bool in_place() const override { return true; }
};

}  // namespace hilbert_ring::server
