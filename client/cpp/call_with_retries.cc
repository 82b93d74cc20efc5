#include "client/cpp/call_with_retries.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cpp/steady_clock.h"

namespace hilbert_ring::client {
namespace {

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
