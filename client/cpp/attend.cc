#include "client/cpp/attend.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/attempt.h"
#include "client/cpp/connector.h"
#include "client/cpp/progress_teller.h"
#include "client/cpp/retry.h"
#include "client/cpp/service.h"
#include "client/cpp/with_message.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/job_id.h"

namespace hilbert_ring::client {
namespace {

constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);

absl::Status CheckSize(const JobSpec& spec, v1::Tensor tensor, std::span<std::byte> data) {
  const int64_t expected = spec.tokens * wire::TensorRowBytes(spec, tensor);
  if (static_cast<int64_t>(data.size()) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(wire::TensorName(tensor), ": has ", data.size(),
                                                 " bytes, the spec says ", expected));
}

absl::Status CheckOptions(const AttendOptions& options) {
  if (options.chunk_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes: ", options.chunk_bytes, ", expected at least 1"));
  }
  if (options.max_attempts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_attempts: ", options.max_attempts, ", expected at least 1"));
  }
  const int last = std::numeric_limits<int>::max() - options.max_attempts;
  if (options.attempt < 0 || options.attempt > last) {
    return absl::InvalidArgumentError(
        absl::StrCat("attempt: ", options.attempt, ", expected 0 to ", last));
  }
  return absl::OkStatus();
}

absl::Status CheckCall(const AttendInputs& inputs, const AttendOutputs& outputs,
                       const AttendOptions& options) {
  RETURN_IF_ERROR(CheckInputs(inputs));
  RETURN_IF_ERROR(CheckSize(inputs.spec, v1::TENSOR_OUT, outputs.out));
  if (!outputs.lse.empty()) {
    RETURN_IF_ERROR(CheckSize(inputs.spec, v1::TENSOR_LSE, outputs.lse));
  }
  return CheckOptions(options);
}

// One Attend: its attempts, one after the other.
class JobCall {
 public:
  JobCall(const AttendInputs& inputs, const AttendOutputs& outputs, const AttendOptions& options)
      : inputs_(inputs),
        outputs_(outputs),
        options_(options),
        timing_(WithDefaults(options.timing)),
        deadline_(timing_.now() + options.deadline),
        schedule_(timing_.random),
        progress_(options.progress) {}

  absl::StatusOr<v1::Report> Run(Connector& connector) {
    AttemptName name{.job_id = options_.job_id.empty() ? wire::DrawJobId() : options_.job_id,
                     .attempt = options_.attempt};
    progress_.Reset(Begin(name));
    for (attempts_ = 1;; ++attempts_, ++name.attempt) {
      // Times out by the system's clock, whichever ours is.
      const absl::Time system_deadline = absl::Now() + (deadline_ - timing_.now());
      Attempt attempt(inputs_, outputs_, options_, name, progress_);
      auto outcome = attempt.Run(connector.channel(), system_deadline);
      if (auto* report = std::get_if<v1::Report>(&outcome)) return std::move(*report);
      const auto& failure = std::get<AttemptFailure>(outcome);
      const std::optional<absl::Duration> wait = schedule_.WaitAfter(failure);
      NoteOutage(failure);
      if (Counts(failure)) ++counted_;
      if (!wait || counted_ >= options_.max_attempts) return Explain(failure.status, "");
      if (Cancelled()) return CancelledAfter(failure.status);
      RETURN_IF_ERROR(CheckTime(failure, *wait));
      AttendProgress next = Begin({name.job_id, name.attempt + 1});
      next.last_failure = failure.status;
      next.wait = *wait;
      next.away = !connector.connected();
      progress_.Reset(std::move(next));
      progress_.Update([](AttendProgress&) {});
      if (!Sleep(*wait)) return CancelledAfter(failure.status);
      if (!connector.Await(absl::Now() + TimeLeft(), options_.cancelled)) {
        if (Cancelled()) return CancelledAfter(failure.status);
        return CheckTime(failure, absl::InfiniteDuration());
      }
    }
  }

 private:
  AttendProgress Begin(const AttemptName& name) const {
    AttendProgress progress;
    progress.job_id = name.job_id;
    progress.attempt = name.attempt;
    progress.bytes_to_send = InputBytes(inputs_.spec);
    progress.tokens = inputs_.spec.tokens;
    return progress;
  }

  // The service did not take the job, and did not say when to come back.
  static bool Away(const AttemptFailure& failure) {
    return absl::IsUnavailable(failure.status) && !failure.pushback;
  }

  // Whether it counts against max_attempts. An outage is bounded by its time.
  bool Counts(const AttemptFailure& failure) const {
    if (failure.admitted || options_.max_attempts == 1) return true;
    if (Away(failure)) return false;
    const bool full =
        absl::IsUnavailable(failure.status) || absl::IsResourceExhausted(failure.status);
    return !full || options_.deadline == absl::InfiniteDuration();
  }

  void NoteOutage(const AttemptFailure& failure) {
    if (!Away(failure)) {
      outage_end_ = absl::InfiniteFuture();
    } else if (failure.admitted || outage_end_ == absl::InfiniteFuture()) {
      outage_end_ = timing_.now() + OutageTimeout();
    }
  }

  absl::Duration OutageTimeout() const {
    if (options_.outage_timeout) return *options_.outage_timeout;
    return options_.deadline == absl::InfiniteDuration() ? kOutageTimeout
                                                         : absl::InfiniteDuration();
  }

  absl::Duration TimeLeft() const { return std::min(deadline_, outage_end_) - timing_.now(); }

  // OK when another attempt after `wait` is in time; else the last error, and why it is final.
  absl::Status CheckTime(const AttemptFailure& failure, absl::Duration wait) const {
    if (wait < TimeLeft()) return absl::OkStatus();
    if (outage_end_ < deadline_) {
      return Explain(failure.status, absl::StrCat("; the service was away for its limit of ",
                                                  absl::FormatDuration(OutageTimeout())));
    }
    const absl::Duration left = deadline_ - timing_.now();
    if (wait == absl::InfiniteDuration()) {
      return Explain(failure.status, absl::StrCat("; the service was away until the deadline of ",
                                                  absl::FormatDuration(options_.deadline)));
    }
    return Explain(failure.status,
                   absl::StrCat("; the next would start in ", absl::FormatDuration(wait),
                                ", the deadline is in ", absl::FormatDuration(left)));
  }

  bool Cancelled() const { return options_.cancelled && options_.cancelled(); }

  // False when the call was cancelled meanwhile.
  bool Sleep(absl::Duration wait) const {
    while (wait > absl::ZeroDuration()) {
      const absl::Duration part = options_.cancelled ? std::min(wait, kCancelPoll) : wait;
      timing_.sleep(part);
      if (Cancelled()) return false;
      wait -= part;
    }
    return true;
  }

  std::string Count() const {
    return attempts_ == 1 ? "1 attempt" : absl::StrCat(attempts_, " attempts");
  }

  absl::Status CancelledAfter(const absl::Status& last) const {
    return absl::CancelledError(
        absl::StrCat("cancelled before another attempt; after ", Count(), " the last error is ",
                     absl::StatusCodeToString(last.code()), ": ", last.message()));
  }

  // The last error, and how many attempts led to it. What this client asked for itself, gRPC says
  // in its own words.
  absl::Status Explain(const absl::Status& status, const std::string& why_no_more) const {
    std::string message(status.message());
    if (absl::IsDeadlineExceeded(status) && options_.deadline < absl::InfiniteDuration()) {
      message = absl::StrCat("the job's deadline of ", absl::FormatDuration(options_.deadline),
                             " passed: ", message);
    }
    if (absl::IsCancelled(status) && Cancelled()) message = "the caller ended the job";
    if (attempts_ > 1 || !why_no_more.empty()) {
      absl::StrAppend(&message, " (after ", Count(), why_no_more, ")");
    }
    return WithMessage(status, message);
  }

  const AttendInputs& inputs_;
  const AttendOutputs& outputs_;
  const AttendOptions& options_;
  const CallTiming timing_;
  const absl::Time deadline_;  // on timing_'s clock
  RetrySchedule schedule_;
  ProgressTeller progress_;
  int attempts_ = 0;                                // made or under way
  int counted_ = 0;                                 // of those, that max_attempts bounds
  absl::Time outage_end_ = absl::InfiniteFuture();  // on timing_'s clock; finite: it is away
};

absl::StatusOr<v1::Report> Attend(Connector connector, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options) {
  RETURN_IF_ERROR(CheckCall(inputs, outputs, options));
  JobCall call(inputs, outputs, options);
  return call.Run(connector);
}

}  // namespace

absl::StatusOr<v1::Report> Attend(const std::string& server, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options) {
  return Attend(Connector([&server, &options] { return Connect(server, options.access); }), inputs,
                outputs, options);
}

absl::StatusOr<v1::Report> Attend(const std::shared_ptr<grpc::Channel>& channel,
                                  const AttendInputs& inputs, const AttendOutputs& outputs,
                                  const AttendOptions& options) {
  return Attend(Connector(channel), inputs, outputs, options);
}

}  // namespace hilbert_ring::client
