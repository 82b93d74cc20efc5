#include "client/cpp/retry.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/errors.h"
#include "client/cpp/job_options.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/random_bits.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::client {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackoff = absl::Seconds(5);
// Limit while the service is away: the job continues within a second of its return.
constexpr absl::Duration kLongestAway = absl::Milliseconds(400);
constexpr int kBackoffDoublings = 6;  // from the first to the longest
constexpr double kRetryAfterJitter = 0.25;
// Half of the first backoff's limit. The service's own retry-after is 80 ms or more.
constexpr absl::Duration kLeastRetryAfter = absl::Milliseconds(50);
constexpr int kRetriesOfDamagedOutput = 2;

// gRPC's own clients also read 32 bits.
std::optional<absl::Duration> ParseRetryAfter(const std::string& milliseconds) {
  int32_t value = 0;
  if (!absl::SimpleAtoi(milliseconds, &value) || value < 0) return std::nullopt;
  return absl::Milliseconds(value);
}

// Returns whether the service's transport ended calls for lack of memory (--transport-memory), with
// HTTP/2's ENHANCE_YOUR_CALM. gRPC has only a text for it.
bool EndedByTransport(const absl::Status& status) {
  return wire::ReasonOf(status) == absl::StatusCodeToString(status.code()) &&
         absl::StrContains(status.message(), "RST_STREAM with error code 11");
}

bool MayHelp(const AttemptFailure& failure, RetryHistory& history) {
  switch (failure.status.code()) {
    case absl::StatusCode::kUnavailable:
      history.connection_lost = true;
      return true;
    case absl::StatusCode::kAborted:
      return wire::HasReason(failure.status, wire::reason::kWorkerLost);
    case absl::StatusCode::kResourceExhausted:
      return failure.retry_after.has_value() || EndedByTransport(failure.status);
    case absl::StatusCode::kAlreadyExists:
      return history.connection_lost;
    case absl::StatusCode::kDataLoss:
      return failure.output_damaged && ++history.damaged_outputs <= kRetriesOfDamagedOutput;
    default:
      return false;
  }
}

absl::Duration Backoff(const AttemptFailure& failure, double random, RetryHistory& history) {
  const absl::Duration longest =
      absl::IsUnavailable(failure.status) ? kLongestAway : kLongestBackoff;
  return random *
         std::min(longest, kFirstBackoff * (1 << std::min(history.backoffs++, kBackoffDoublings)));
}

std::optional<absl::Duration> WaitAfter(const AttemptFailure& failure, double random,
                                        RetryHistory& history) {
  if (!MayHelp(failure, history)) return std::nullopt;
  if (!failure.retry_after) return Backoff(failure, random, history);
  const std::optional<absl::Duration> retry_after = ParseRetryAfter(*failure.retry_after);
  if (!retry_after) return std::nullopt;
  const absl::Duration wait = *retry_after * (1 + kRetryAfterJitter * random);
  if (*retry_after < kLeastRetryAfter) return std::max(wait, Backoff(failure, random, history));
  history.backoffs = 0;
  return wait;
}

// The service did not take the job, and gave no retry-after.
bool Away(const AttemptFailure& failure) {
  return absl::IsUnavailable(failure.status) && !failure.retry_after;
}

bool Counts(const RetryPolicy& policy, const AttemptFailure& failure) {
  if (failure.admitted || policy.max_attempts == 1) return true;
  if (Away(failure)) return false;
  const bool full =
      absl::IsUnavailable(failure.status) || absl::IsResourceExhausted(failure.status);
  return !full || policy.deadline == absl::InfiniteDuration();
}

absl::Duration OutageTimeout(const RetryPolicy& policy) {
  const bool endless = policy.deadline == absl::InfiniteDuration();
  return policy.outage_timeout.value_or(endless ? kOutageTimeout : absl::InfiniteDuration());
}

// Returns the time at which the deadline or the outage's time limit passes.
absl::Time RetryEnd(const RetryPolicy& policy, const RetryHistory& history) {
  return std::min(policy.end, history.outage_end);
}

std::string AttemptsMade(const RetryHistory& history) {
  return absl::StrCat(history.attempts, history.attempts == 1 ? " attempt" : " attempts");
}

absl::Status GaveUp(const RetryHistory& history, const absl::Status& status,
                    const std::string& why) {
  if (history.attempts == 1 && why.empty()) return status;
  return WithMessage(status,
                     absl::StrCat(status.message(), " (after ", AttemptsMade(history), why, ")"));
}

// Returns the error of a call whose next attempt would start after RetryEnd, in `wait`. Infinite:
// there was no connection until then.
absl::Status TooLate(const RetryPolicy& policy, const RetryHistory& history,
                     const absl::Status& failure, absl::Time now, absl::Duration wait) {
  if (history.outage_end < policy.end) {
    return GaveUp(history, failure,
                  absl::StrCat("; the service was away for its limit of ",
                               absl::FormatDuration(OutageTimeout(policy))));
  }
  if (wait == absl::InfiniteDuration()) {
    return GaveUp(history, failure,
                  absl::StrCat("; the service was away until the deadline of ",
                               absl::FormatDuration(policy.deadline)));
  }
  return GaveUp(history, failure,
                absl::StrCat("; the next would start in ", absl::FormatDuration(wait),
                             ", the deadline is in ", absl::FormatDuration(policy.end - now)));
}

constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);

bool Cancelled(const RetriedCall& call) { return call.cancelled && call.cancelled(); }

void Sleep(const RetriedCall& call, absl::Duration wait) {
  while (wait > absl::ZeroDuration() && !Cancelled(call)) {
    const absl::Duration part = call.cancelled ? std::min(wait, kCancelPoll) : wait;
    call.timing.sleep(part);
    wait -= part;
  }
}

}  // namespace

std::optional<std::string> RetryAfterOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(wire::kRetryAfterKey);
  if (found == metadata.end()) return std::nullopt;
  return std::string(found->second.data(), found->second.size());
}

RetryDecision DecideRetry(const RetryPolicy& policy, RetryHistory history,
                          const AttemptFailure& failure, absl::Time now, double random) {
  ++history.attempts;
  const std::optional<absl::Duration> wait = WaitAfter(failure, random, history);
  if (!Away(failure)) {
    history.outage_end = absl::InfiniteFuture();
  } else if (failure.admitted || history.outage_end == absl::InfiniteFuture()) {
    history.outage_end = now + OutageTimeout(policy);
  }
  if (Counts(policy, failure)) ++history.counted;
  if (!wait || history.counted >= policy.max_attempts) {
    return {.history = history, .error = GaveUp(history, failure.status, "")};
  }
  if (now + *wait >= RetryEnd(policy, history)) {
    return {.history = history, .error = TooLate(policy, history, failure.status, now, *wait)};
  }
  return {.history = history, .wait = wait};
}

CallTiming WithDefaults(CallTiming timing) {
  if (!timing.now) timing.now = SteadyNow;
  if (!timing.sleep) timing.sleep = [](absl::Duration duration) { absl::SleepFor(duration); };
  if (!timing.random) {
    timing.random = [engine = std::mt19937_64(DrawBits())]() mutable {
      return std::uniform_real_distribution<double>(0, 1)(engine);
    };
  }
  return timing;
}

absl::Status CallWithRetries(Connector& connector, const RetriedCall& call) {
  const CallTiming& timing = call.timing;
  RetryHistory history;
  while (true) {
    // gRPC uses its own clock, also if `timing` has another one.
    const absl::Duration left = std::min(call.policy.end - timing.now(), call.longest_attempt);
    const std::optional<AttemptFailure> failure = call.make(SteadyNow() + left);
    if (!failure) return absl::OkStatus();
    if (call.final && call.final(*failure)) return failure->status;
    const RetryDecision decision =
        DecideRetry(call.policy, history, *failure, timing.now(), timing.random());
    if (!decision.wait) return decision.error;
    history = decision.history;
    if (call.tell) {
      call.tell({.failure = failure->status,
                 .attempt = history.attempts + 1,
                 .wait = *decision.wait,
                 .away = !connector.connected()});
    }
    Sleep(call, *decision.wait);
    const bool connected =
        connector.Await(RetryEnd(call.policy, history) - timing.now(), call.cancelled);
    if (Cancelled(call)) {
      const absl::Status& last = failure->status;
      return absl::CancelledError(absl::StrCat(
          "cancelled before another attempt; after ", AttemptsMade(history), " the last error is ",
          absl::StatusCodeToString(last.code()), ": ", last.message()));
    }
    if (!connected) {
      return TooLate(call.policy, history, failure->status, timing.now(), absl::InfiniteDuration());
    }
  }
}

}  // namespace hilbert_ring::client
