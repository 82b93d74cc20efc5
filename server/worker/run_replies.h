// Messages of a run to the coordinator.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/deadline.h"
#include "server/worker/run_course.h"
#include "wire/payload_message.h"

namespace hilbert_ring::server {

// Carries RunResponses and RunRequests (server/shard/run_message.h).
using RunStream = grpc::ServerReaderWriterInterface<grpc::ByteBuffer, grpc::ByteBuffer>;

class RunReplies {  // used by one thread at a time
 public:
  static constexpr std::chrono::milliseconds kProgressInterval{200};

  // stopped: whether the run has failed. file_bytes: read and written.
  RunReplies(RunStream& stream, std::function<bool()> stopped, std::function<int64_t()> file_bytes)
      : stream_(stream), stopped_(std::move(stopped)), file_bytes_(std::move(file_bytes)) {}

  absl::Status Write(const grpc::ByteBuffer& message, grpc::WriteOptions options = {}) {
    return stream_.Write(message, options) ? absl::OkStatus() : RunCancelled();
  }
  absl::Status Write(const v1::RunResponse& response, grpc::WriteOptions options = {}) {
    return Write(wire::Serialize(response), options);
  }

  // At intervals, if it is new.
  absl::Status WriteProgress(RunProgress progress) {
    progress.file_bytes = file_bytes_();
    const bool is_new = progress.fraction > written_.fraction ||
                        progress.waiting_step != written_.waiting_step ||
                        progress.file_bytes > written_.file_bytes;
    return is_new ? WriteIfDue(progress) : absl::OkStatus();
  }

  // At intervals, while this thread writes outputs to a disk: shows that the run moves. CANCELLED
  // if it has failed.
  absl::Status WriteMoved() {
    if (stopped_()) return RunCancelled();
    RunProgress progress = written_;
    progress.file_bytes = file_bytes_();
    return WriteIfDue(progress);
  }

 private:
  absl::Status WriteIfDue(const RunProgress& progress) {
    const Deadline now = Clock::now();
    if (now < progress_due_) return absl::OkStatus();
    progress_due_ = now + kProgressInterval;
    written_ = progress;
    v1::RunResponse response;
    response.mutable_progress()->set_fraction(progress.fraction);
    response.mutable_progress()->set_waiting_step(progress.waiting_step);
    response.mutable_progress()->set_layer(progress.layer);
    response.mutable_progress()->set_file_bytes(progress.file_bytes);
    return Write(response);
  }

  RunStream& stream_;
  const std::function<bool()> stopped_;
  const std::function<int64_t()> file_bytes_;
  RunProgress written_;
  Deadline progress_due_;
};

}  // namespace hilbert_ring::server
