#include "client/cpp/job_call.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client/cpp/steady_clock.h"
#include "client/cpp/with_message.h"
#include "engine/base/return_if_error.h"
#include "wire/job_id.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);
// gRPC's deadline is reckoned from a time that was read before ours.
constexpr absl::Duration kDeadlineEarly = absl::Milliseconds(100);

absl::Status CheckOptions(const JobOptions& options) {
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

// The attempts of one call, one after the other.
class JobCall {
 public:
  JobCall(const RunAttempt& run, const JobProgress& begin, const JobOptions& options)
      : run_(run),
        begin_(begin),
        options_(options),
        timing_(WithDefaults(options.timing)),
        deadline_(timing_.now() + options.deadline - options.spent),
        schedule_(timing_.random),
        progress_(options.progress) {}

  absl::StatusOr<v1::Report> Run(Connector& connector) {
    AttemptName name{.job_id = options_.job_id.empty() ? wire::DrawJobId() : options_.job_id,
                     .attempt = options_.attempt};
    progress_.Reset(Begin(name));
    for (attempts_ = 1;; ++attempts_, ++name.attempt) {
      // gRPC has its own clock, whichever ours is.
      const absl::Time grpc_deadline = SteadyNow() + (deadline_ - timing_.now());
      auto outcome = run_(connector.channel(), grpc_deadline, name, progress_);
      if (auto* report = std::get_if<v1::Report>(&outcome)) return std::move(*report);
      const auto& failure = std::get<AttemptFailure>(outcome);
      if (options_.final && options_.final(failure.status)) return Explain(failure.status, "");
      const std::optional<absl::Duration> wait = schedule_.WaitAfter(failure);
      NoteOutage(failure);
      if (Counts(failure)) ++counted_;
      if (!wait || counted_ >= options_.max_attempts) return Explain(failure.status, "");
      if (Cancelled()) return CancelledAfter(failure.status);
      RETURN_IF_ERROR(CheckTime(failure, *wait));
      JobProgress next = Begin({name.job_id, name.attempt + 1});
      next.last_failure = failure.status;
      next.wait = *wait;
      next.away = !connector.connected();
      progress_.Reset(std::move(next));
      progress_.Update([](JobProgress&) {});
      if (!Sleep(*wait)) return CancelledAfter(failure.status);
      if (!connector.Await(TimeLeft(), options_.cancelled)) {
        if (Cancelled()) return CancelledAfter(failure.status);
        return CheckTime(failure, absl::InfiniteDuration());
      }
    }
  }

 private:
  JobProgress Begin(const AttemptName& name) const {
    JobProgress progress = begin_;
    progress.job_id = name.job_id;
    progress.attempt = name.attempt;
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

  // Whether the job's own deadline ended it, and no limit of the service.
  bool PassedDeadline(const absl::Status& status) const {
    if (!absl::IsDeadlineExceeded(status) || timing_.now() + kDeadlineEarly < deadline_) {
      return false;
    }
    return wire::ReasonOf(status) == absl::StatusCodeToString(status.code()) ||
           wire::HasReason(status, wire::reason::kClientDeadline);
  }

  // The last error, and how many attempts led to it. What this client asked for itself, gRPC says
  // in its own words.
  absl::Status Explain(const absl::Status& status, const std::string& why_no_more) const {
    std::string message(status.message());
    if (PassedDeadline(status)) {
      message = absl::StrCat("the job's deadline of ", absl::FormatDuration(options_.deadline),
                             " passed: ", message);
    }
    if (absl::IsCancelled(status) && Cancelled()) message = "the caller ended the job";
    if (attempts_ > 1 || !why_no_more.empty()) {
      absl::StrAppend(&message, " (after ", Count(), why_no_more, ")");
    }
    return WithMessage(status, message);
  }

  const RunAttempt& run_;
  const JobProgress& begin_;
  const JobOptions& options_;
  const CallTiming timing_;
  const absl::Time deadline_;  // on timing_'s clock
  RetrySchedule schedule_;
  ProgressTeller progress_;
  int attempts_ = 0;                                // made or under way
  int counted_ = 0;                                 // of those, that max_attempts bounds
  absl::Time outage_end_ = absl::InfiniteFuture();  // on timing_'s clock; finite: it is away
};

}  // namespace

absl::StatusOr<v1::Report> CallJob(Connector& connector, const RunAttempt& run,
                                   const JobProgress& begin, const JobOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  JobCall call(run, begin, options);
  return call.Run(connector);
}

absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options) {
  JobProgress begin;
  begin.by_reference = request.by_reference();
  begin.bytes_to_send = request.tensors.input_bytes();
  const auto& outputs = request.tensors.outputs;
  begin.rows = outputs.empty() ? 0 : outputs.front().rows;
  begin.tokens = request.tokens;
  const auto run = [&](const std::shared_ptr<grpc::Channel>& channel, absl::Time deadline,
                       const AttemptName& name, ProgressTeller& progress) {
    return Attempt(request, options, name, progress).Run(channel, deadline);
  };
  return CallJob(connector, run, begin, options);
}

}  // namespace hilbert_ring::client
