// The conversation of AttendStream, from Open to the report.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/attend_stream.h"
#include "client/cpp/conversation.h"
#include "client/cpp/job_options.h"
#include "client/cpp/progress_teller.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::client {

class StreamConversation : public Conversation {
 public:
  // All must outlive the object. The option chunk_bytes has an effect.
  StreamConversation(const AttendStreamCalls& calls, const JobOptions& options, AttemptName name,
                     ProgressTeller& progress);

  const char* method() const override { return "/hilbert_ring.v1.AttentionService/AttendStream"; }
  v1::AttendRequest Open() override;
  absl::Status Handle(const v1::AttendResponse& response, const wire::Payload& payload) override;
  absl::StatusOr<v1::Report> Finish() override;
  bool admitted() const override { return admitted_; }

  Sending sending() const override;
  absl::StatusOr<std::optional<Message>> Next(const std::stop_token& over) override;
  void Sent() override;

 private:
  absl::Status Admit(const v1::Admitted& admitted);
  absl::Status Take(const v1::OutputChunk& chunk, const wire::Payload& payload);
  absl::Status CheckBlock(const StreamBlock& block) const;

  const AttendStreamCalls& calls_;
  const JobOptions& options_;
  const AttemptName name_;
  ProgressTeller& progress_;
  bool admitted_ = false;
  int64_t chunk_rows_ = 0;
  int64_t out_rows_ = 0, lse_rows_ = 0;
  int64_t not_finite_ = 0, first_not_finite_ = 0;  // of OUT
  std::vector<std::byte> taken_;                   // a chunk's contiguous rows
  std::optional<v1::Report> report_;
  std::atomic<int64_t> sent_rows_ = 0;  // including rows being sent now
  // Used by the sending thread until it has ended:
  std::optional<wire::SlicePool> buffers_;
  StreamBlock block_;           // being sent
  int64_t row_ = 0, rows_ = 0;  // of block_: the current band's first row and count
  int tensor_ = 0;              // index of the band's next tensor; Q, K and V are interleaved
  int64_t payload_bytes_ = 0;
  bool input_ended_ = false;
};

}  // namespace hilbert_ring::client
