// Ways of rows into a run's shard and out of it: messages (message_rows.h), memory shared with the
// coordinator (run_shard.cc), or files (file_rows.h).
#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/deadline.h"
#include "server/worker/run_course.h"
#include "wire/payload.h"
#include "wire/payload_message.h"

namespace hilbert_ring::server {

// Carries RunResponses and RunRequests (server/shard/run_message.h).
using RunStream = grpc::ServerReaderWriterInterface<grpc::ByteBuffer, grpc::ByteBuffer>;

// Messages of a run to the coordinator.
class RunReplies {  // used by one thread at a time
 public:
  static constexpr std::chrono::milliseconds kProgressInterval{200};

  RunReplies(RunStream& stream, RunCourse& course) : stream_(stream), course_(course) {}

  absl::Status Write(const grpc::ByteBuffer& message, grpc::WriteOptions options = {}) {
    return stream_.Write(message, options) ? absl::OkStatus() : RunCancelled();
  }
  absl::Status Write(const v1::RunResponse& response, grpc::WriteOptions options = {}) {
    return Write(wire::Serialize(response), options);
  }

  // At intervals, if it is new.
  absl::Status WriteProgress(const RunProgress& progress) {
    const bool is_new = progress.fraction > written_.fraction ||
                        progress.waiting_step != written_.waiting_step ||
                        progress.bytes_read > written_.bytes_read ||
                        progress.bytes_written > written_.bytes_written;
    return is_new ? WriteIfDue(progress) : absl::OkStatus();
  }

  // At intervals, while this thread writes outputs to a disk: shows that the run moves. CANCELLED
  // if it has failed.
  absl::Status WriteMoved() {
    return course_.IsStopped() ? RunCancelled() : WriteIfDue(course_.news().progress);
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
    response.mutable_progress()->set_file_bytes(progress.bytes_read + progress.bytes_written);
    return Write(response);
  }

  RunStream& stream_;
  RunCourse& course_;
  RunProgress written_;
  Deadline progress_due_;
};

// The call's thread brings rows, while another thread takes outputs.
class ShardWay {
 public:
  virtual ~ShardWay() = default;

  // Returns how many local rows, from the first on, are there by now.
  virtual absl::StatusOr<int64_t> Take(const v1::RunRequest& message,
                                       const wire::Payload& payload) = 0;

  // After the coordinator's last message: brings the other rows.
  virtual absl::Status FinishInput() { return absl::OkStatus(); }

  // Takes outputs up to local row rows_final, which grows or stays. options: of the message.
  virtual absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) = 0;

  virtual absl::Status FinishOutput(RunReplies& /*replies*/) { return absl::OkStatus(); }
};

}  // namespace hilbert_ring::server
