#include "client/cpp/retry.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/job_options.h"
#include "client/cpp/with_message.h"
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

absl::Status GaveUp(const RetryHistory& history, const absl::Status& status,
                    const std::string& why) {
  if (history.attempts == 1 && why.empty()) return status;
  return WithMessage(status,
                     absl::StrCat(status.message(), " (after ", AttemptsMade(history), why, ")"));
}

}  // namespace

std::optional<std::string> RetryAfterOf(const grpc::ClientContext& context) {
  std::optional<std::string> retry_after;
  const auto& metadata = context.GetServerTrailingMetadata();
  for (auto [entry, end] = metadata.equal_range(wire::kRetryAfterKey); entry != end; ++entry) {
    retry_after = absl::StrCat(retry_after ? *retry_after + "," : "",
                               std::string(entry->second.data(), entry->second.size()));
  }
  return retry_after;
}

absl::Time RetryEnd(const RetryPolicy& policy, const RetryHistory& history) {
  return std::min(policy.end, history.outage_end);
}

std::string AttemptsMade(const RetryHistory& history) {
  return absl::StrCat(history.attempts, history.attempts == 1 ? " attempt" : " attempts");
}

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

}  // namespace hilbert_ring::client
