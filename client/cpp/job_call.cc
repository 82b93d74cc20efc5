#include "client/cpp/job_call.h"

#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client/cpp/call_with_retries.h"
#include "client/cpp/carrier.h"
#include "client/cpp/job_conversation.h"
#include "client/cpp/service.h"
#include "client/cpp/with_message.h"
#include "engine/base/return_if_error.h"
#include "wire/job_id.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

// gRPC computes its deadline from an earlier reading of the clock.
constexpr absl::Duration kDeadlineEarly = absl::Milliseconds(100);

absl::Status CheckOptions(const JobOptions& options) {
  if (options.chunk_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes is ", options.chunk_bytes, ", must be at least 1"));
  }
  if (options.max_attempts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_attempts is ", options.max_attempts, ", must be at least 1"));
  }
  const int last = std::numeric_limits<int>::max() - options.max_attempts;
  if (options.attempt < 0 || options.attempt > last) {
    return absl::InvalidArgumentError(
        absl::StrCat("attempt is ", options.attempt, ", must be 0 to ", last));
  }
  return absl::OkStatus();
}

// Returns whether the job's own deadline ended it, not a limit of the service.
bool PassedDeadline(const absl::Status& status, absl::Duration left) {
  if (!absl::IsDeadlineExceeded(status) || left > kDeadlineEarly) return false;
  return wire::ReasonOf(status) == absl::StatusCodeToString(status.code()) ||
         wire::HasReason(status, wire::reason::kClientDeadline);
}

}  // namespace

absl::StatusOr<v1::Report> CallJob(Connector& connector, const NewConversation& conversation,
                                   const JobProgress& begin, const JobOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  AttemptName name{.job_id = options.job_id.empty() ? wire::DrawJobId() : options.job_id,
                   .attempt = options.attempt};
  ProgressTeller progress(options.progress);
  const auto reset = [&](JobProgress to) {
    to.job_id = name.job_id;
    to.attempt = name.attempt;
    progress.Reset(std::move(to));
  };
  reset(begin);
  v1::Report report;
  RetriedCall call;
  call.timing = WithDefaults(options.timing);
  call.cancelled = options.cancelled;
  call.policy.max_attempts = options.max_attempts;
  call.policy.deadline = options.deadline;
  call.policy.end = call.timing.now() + options.deadline - options.spent;
  call.policy.outage_timeout = options.outage_timeout;
  call.final = [&](const AttemptFailure& failure) {
    // The client keeps no rows of a stream.
    return (begin.stream && failure.admitted) || (options.final && options.final(failure.status));
  };
  call.make = [&](absl::Time deadline) -> std::optional<AttemptFailure> {
    const auto attempt = conversation(name, progress);
    auto outcome = Carry(*attempt, connector.channel(), deadline, options);
    if (auto* failure = std::get_if<AttemptFailure>(&outcome)) return std::move(*failure);
    report = std::get<v1::Report>(std::move(outcome));
    return std::nullopt;
  };
  call.tell = [&](const CallRetry& retry) {
    ++name.attempt;
    JobProgress next = begin;
    next.last_failure = retry.failure;
    next.wait = retry.wait;
    next.away = retry.away;
    reset(std::move(next));
    progress.Update([](JobProgress&) {});
  };
  const absl::Status ended = CallWithRetries(connector, call);
  if (PassedDeadline(ended, call.policy.end - call.timing.now())) {
    return WithMessage(
        ended, absl::StrCat("the job's deadline of ", absl::FormatDuration(options.deadline),
                            " passed: ", ended.message()));
  }
  RETURN_IF_ERROR(ended);
  return report;
}

absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options) {
  JobProgress begin;
  begin.by_reference = request.by_reference();
  begin.bytes_to_send = request.tensors.input_bytes();
  const auto& outputs = request.tensors.outputs;
  begin.rows = outputs.empty() ? 0 : outputs.front().rows;
  begin.tokens = request.tokens;
  const auto conversation = [&](const AttemptName& name, ProgressTeller& progress) {
    return std::make_unique<JobConversation>(request, options, name, progress);
  };
  return CallJob(connector, conversation, begin, options);
}

absl::StatusOr<v1::Report> CallJob(const std::string& server, const JobRequest& request,
                                   const JobOptions& options) {
  Connector connector([&server, &options] { return Connect(server, options.access); });
  return CallJob(connector, request, options);
}

}  // namespace hilbert_ring::client
