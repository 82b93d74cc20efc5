#include "client/cpp/retry.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::client {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackoff = absl::Seconds(5);
// Of a service that is away: the job goes on within a second of its return.
constexpr absl::Duration kLongestAway = absl::Milliseconds(400);
constexpr int kBackoffDoublings = 6;  // from the first to the longest
constexpr double kPushbackJitter = 0.25;
// Half of the first backoff's limit. The service's own is 80 ms or more.
constexpr absl::Duration kLeastPushback = absl::Milliseconds(50);
constexpr int kRetriesOfDamagedOutput = 2;

// 32 bits, as gRPC's own clients read it.
std::optional<absl::Duration> ParsePushback(const std::string& milliseconds) {
  int32_t value = 0;
  if (!absl::SimpleAtoi(milliseconds, &value) || value < 0) return std::nullopt;
  return absl::Milliseconds(value);
}

// The service's transport had no memory for what came (--transport-memory) and ended calls, this
// one or another's: HTTP/2's ENHANCE_YOUR_CALM, which gRPC tells in words alone.
bool EndedByTransport(const absl::Status& status) {
  return wire::ReasonOf(status) == absl::StatusCodeToString(status.code()) &&
         absl::StrContains(status.message(), "RST_STREAM with error code 11");
}

}  // namespace

std::optional<std::string> PushbackOf(const grpc::ClientContext& context) {
  std::optional<std::string> pushback;
  const auto& metadata = context.GetServerTrailingMetadata();
  for (auto [entry, end] = metadata.equal_range(wire::kPushbackKey); entry != end; ++entry) {
    pushback = absl::StrCat(pushback ? *pushback + "," : "",
                            std::string(entry->second.data(), entry->second.size()));
  }
  return pushback;
}

std::optional<absl::Duration> RetrySchedule::WaitAfter(const AttemptFailure& failure) {
  if (!MayHelp(failure)) return std::nullopt;
  const absl::Duration longest =
      absl::IsUnavailable(failure.status) ? kLongestAway : kLongestBackoff;
  if (!failure.pushback) return Backoff(longest);
  const std::optional<absl::Duration> pushback = ParsePushback(*failure.pushback);
  if (!pushback) return std::nullopt;
  const absl::Duration wait = *pushback * (1 + kPushbackJitter * random_());
  if (*pushback < kLeastPushback) return std::max(wait, Backoff(longest));
  backoffs_ = 0;
  return wait;
}

bool RetrySchedule::MayHelp(const AttemptFailure& failure) {
  switch (failure.status.code()) {
    case absl::StatusCode::kUnavailable:
      connection_lost_ = true;
      return true;
    case absl::StatusCode::kAborted:
      return wire::HasReason(failure.status, wire::reason::kWorkerLost);
    case absl::StatusCode::kResourceExhausted:
      return failure.pushback.has_value() || EndedByTransport(failure.status);
    case absl::StatusCode::kAlreadyExists:
      return connection_lost_;
    case absl::StatusCode::kDataLoss:
      return failure.output_damaged && ++damaged_outputs_ <= kRetriesOfDamagedOutput;
    default:
      return false;
  }
}

absl::Duration RetrySchedule::Backoff(absl::Duration longest) {
  const absl::Duration limit =
      std::min(longest, kFirstBackoff * (1 << std::min(backoffs_, kBackoffDoublings)));
  ++backoffs_;
  return limit * random_();
}

}  // namespace hilbert_ring::client
