// The conversation of Attend and Encode, from Open to the report.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/cpp/assembled_rows.h"
#include "client/cpp/conversation.h"
#include "client/cpp/input_chunks.h"
#include "client/cpp/job_options.h"
#include "client/cpp/job_request.h"
#include "client/cpp/progress_teller.h"
#include "client/cpp/resend_queue.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::client {

class JobConversation : public Conversation {
 public:
  // All must outlive the object; inputs and outputs were checked. The options chunk_bytes,
  // can_resend and want_trace have an effect.
  JobConversation(const JobRequest& request, const JobOptions& options, AttemptName name,
                  ProgressTeller& progress);

  const char* method() const override { return request_.method; }
  v1::AttendRequest Open() override;
  absl::Status Handle(const v1::AttendResponse& response, const wire::Payload& payload) override;
  absl::StatusOr<v1::Report> Finish() override;
  bool admitted() const override { return admitted_; }

  Sending sending() const override;
  // OUT_OF_RANGE: a row is longer than a payload may be; nothing was sent then.
  absl::StatusOr<std::optional<Message>> Next(const std::stop_token& over) override;
  void Sent() override;

 private:
  void NoteAdmitted(int workers);
  void BeginInput(int64_t max_payload_bytes);
  absl::Status Resend(const v1::Resend& resend);
  absl::Status Place(const v1::OutputChunk& chunk, const wire::Payload& payload);

  const JobRequest& request_;
  const JobOptions& options_;
  const AttemptName name_;
  ProgressTeller& progress_;
  std::map<v1::Tensor, AssembledRows> outputs_;
  bool admitted_ = false;
  std::optional<v1::Report> report_;
  // Set once the size of chunks is known:
  std::optional<InputChunks> chunks_;
  std::optional<wire::SlicePool> buffers_;
  v1::Chunk chunk_;  // the current one; payload_ is its payload
  std::string_view payload_;
  std::atomic<int64_t> bytes_left_;  // of inputs not yet sent for the first time
  mutable Mutex mutex_;
  bool reported_ ABSL_GUARDED_BY(mutex_) = false;
  ResendQueue again_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::client
