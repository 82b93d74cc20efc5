// One attempt of a job: one call of Attend or Encode, from Open to its status.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/assembled_rows.h"
#include "client/cpp/input_sender.h"
#include "client/cpp/job_options.h"
#include "client/cpp/job_tensors.h"
#include "client/cpp/progress_teller.h"
#include "client/cpp/retry.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"
#include "wire/raw_stream.h"

namespace hilbert_ring::client {

// A job as it is called for.
struct JobRequest {
  const char* method = nullptr;  // of a service: "/hilbert_ring.v1.AttentionService/Attend"
  v1::Open open;                 // but for what an attempt says of itself
  JobTensors tensors;
  int64_t tokens = 0;

  // Nothing is sent: the tensors lie in files.
  bool by_reference() const { return open.files_size() > 0; }
};

struct AttemptName {
  std::string job_id;
  int attempt = 0;
};

// Runs once.
class Attempt {
 public:
  // All must outlive the object; inputs and outputs were checked. Of the options it reads
  // chunk_bytes, can_resend, want_trace, traceparent and cancelled.
  Attempt(const JobRequest& request, const JobOptions& options, AttemptName name,
          ProgressTeller& progress);

  // Blocks until the call is over. deadline: of GrpcDeadline.
  std::variant<v1::Report, AttemptFailure> Run(const std::shared_ptr<grpc::Channel>& channel,
                                               absl::Time deadline);

 private:
  v1::AttendRequest OpenRequest() const;
  absl::Status Handle(grpc::ByteBuffer& message);
  absl::Status Handle(const v1::AttendResponse& response);
  absl::Status Admit(const v1::Admitted& admitted);
  void NoteAdmitted(int workers);
  absl::Status MakeSender(int64_t max_payload_bytes);
  bool eager() const;
  absl::Status Place(const v1::OutputChunk& chunk, const wire::Payload& payload);
  absl::Status CheckComplete() const;
  AttemptFailure Failure(const absl::Status& local, const absl::Status& remote) const;

  const JobRequest& request_;
  const JobOptions& options_;
  const AttemptName name_;
  ProgressTeller& progress_;
  std::map<v1::Tensor, AssembledRows> outputs_;
  bool admitted_ = false;
  std::optional<v1::Report> report_;
  grpc::ClientContext context_;  // before the stream, which uses it
  std::unique_ptr<wire::RawStream> stream_;
  std::optional<InputSender> sender_;  // once the size of chunks is known; always when admitted
};

}  // namespace hilbert_ring::client
