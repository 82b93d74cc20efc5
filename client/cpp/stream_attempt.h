// One call of AttendStream, from Open to its status.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/attempt.h"
#include "client/cpp/attend_stream.h"
#include "client/cpp/job_options.h"
#include "client/cpp/progress_teller.h"
#include "client/cpp/retry.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"
#include "wire/raw_stream.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::client {

// Runs once.
class StreamAttempt {
 public:
  // All must outlive the object. begun: set once rows were asked for.
  StreamAttempt(const AttendStreamCalls& calls, const JobOptions& options, AttemptName name,
                ProgressTeller& progress, std::atomic<bool>& begun);

  std::variant<v1::Report, AttemptFailure> Run(const std::shared_ptr<grpc::Channel>& channel,
                                               absl::Time deadline);

 private:
  v1::AttendRequest OpenRequest() const;
  absl::Status Handle(grpc::ByteBuffer& message);
  absl::Status Handle(const v1::AttendResponse& response);
  absl::Status Admit(const v1::Admitted& admitted);
  absl::Status Take(const v1::OutputChunk& chunk, const wire::Payload& payload);
  absl::Status CheckEnd() const;
  // The sender's thread.
  absl::Status SendAll(const std::stop_token& over);
  absl::StatusOr<bool> SendBlock(const StreamBlock& block);
  absl::Status CheckBlock(const StreamBlock& block) const;

  const AttendStreamCalls& calls_;
  const JobOptions& options_;
  const AttemptName name_;
  ProgressTeller& progress_;
  std::atomic<bool>& begun_;
  bool admitted_ = false;
  int64_t chunk_rows_ = 0;
  int64_t out_rows_ = 0, lse_rows_ = 0;            // taken
  int64_t not_finite_ = 0, first_not_finite_ = 0;  // of OUT
  std::vector<std::byte> taken_;                   // a chunk's rows in one piece
  std::optional<v1::Report> report_;
  grpc::ClientContext context_;  // before the stream, which uses it
  std::unique_ptr<wire::RawStream> stream_;
  std::atomic<bool> input_ended_ = false;
  std::atomic<int64_t> sent_rows_ = 0;  // those included that are just being sent
  // The sender's, until it has ended:
  std::optional<wire::SlicePool> buffers_;
  absl::Status source_;  // of `next`
  std::jthread sender_;  // last: it uses all above
};

}  // namespace hilbert_ring::client
