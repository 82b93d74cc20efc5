#include "client/cpp/attend_stream.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cpp/connector.h"
#include "client/cpp/job_call.h"
#include "client/cpp/service.h"
#include "client/cpp/stream_conversation.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {
namespace {

absl::Status Check(const AttendStreamCalls& calls) {
  if (calls.spec.tokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens is ", calls.spec.tokens, ", but a stream without end has no count of tokens"));
  }
  if (!calls.next || !calls.take) {
    return absl::InvalidArgumentError("next, take: a stream needs both");
  }
  // The epochs' limits, which the service checks, depend on its tokens.
  JobSpec spec = calls.spec;
  spec.tokens = 1;
  spec.sequence_lengths.clear();
  spec.ordering.reset();
  return Validate(spec);
}

absl::StatusOr<v1::Report> AttendStream(Connector connector, const AttendStreamCalls& calls,
                                        const JobOptions& options) {
  RETURN_IF_ERROR(Check(calls));
  const auto conversation = [&](const AttemptName& name, ProgressTeller& progress) {
    return std::make_unique<StreamConversation>(calls, options, name, progress);
  };
  return CallJob(connector, conversation, {.stream = true}, options);
}

}  // namespace

absl::StatusOr<v1::Report> AttendStream(const std::string& server, const AttendStreamCalls& calls,
                                        const JobOptions& options) {
  return AttendStream(
      Connector([&server, &options] { return ConnectForStream(server, options.access); }), calls,
      options);
}

absl::StatusOr<v1::Report> AttendStream(const std::shared_ptr<grpc::Channel>& channel,
                                        const AttendStreamCalls& calls, const JobOptions& options) {
  return AttendStream(Connector(channel), calls, options);
}

}  // namespace hilbert_ring::client
