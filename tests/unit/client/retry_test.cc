#include "client/cpp/retry.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;

AttemptFailure Failure(absl::StatusCode code, const std::string& reason = "") {
  absl::Status status(code, "");
  if (!reason.empty()) status = wire::WithReason(std::move(status), reason);
  return {.status = std::move(status)};
}

AttemptFailure LostWorker() { return Failure(absl::StatusCode::kAborted, "WORKER_LOST"); }

AttemptFailure PushedBack(const std::string& retry_after) {
  AttemptFailure failure = Failure(absl::StatusCode::kResourceExhausted);
  failure.retry_after = retry_after;
  return failure;
}

class Schedule {
 public:
  explicit Schedule(double random) : random_(random) {}

  std::optional<absl::Duration> WaitAfter(const AttemptFailure& failure) {
    const RetryDecision decision = DecideRetry({}, history_, failure, absl::UnixEpoch(), random_);
    EXPECT_EQ(decision.wait.has_value(), decision.error.ok());
    history_ = decision.history;
    return decision.wait;
  }

 private:
  double random_;
  RetryHistory history_;
};

std::vector<int64_t> Milliseconds(Schedule schedule, int failures,
                                  const AttemptFailure& failure = LostWorker()) {
  std::vector<int64_t> waits;
  waits.reserve(failures);
  for (int i = 0; i < failures; ++i) {
    waits.push_back(absl::ToInt64Milliseconds(*schedule.WaitAfter(failure)));
  }
  return waits;
}

TEST(Retry, BackoffDoublesItsLimitAndHasFullJitter) {
  EXPECT_THAT(Milliseconds(Schedule(0), 3), ElementsAre(0, 0, 0));
  EXPECT_THAT(Milliseconds(Schedule(0.5), 9),
              ElementsAre(50, 100, 200, 400, 800, 1600, 2500, 2500, 2500));
  EXPECT_THAT(Milliseconds(Schedule(0.99), 8),
              ElementsAre(99, 198, 396, 792, 1584, 3168, 4950, 4950));
}

TEST(Retry, AServiceThatIsAwayIsTriedAgainWithinASecond) {
  const AttemptFailure away = Failure(absl::StatusCode::kUnavailable, "NO_WORKERS");
  EXPECT_THAT(Milliseconds(Schedule(0.5), 6, away), ElementsAre(50, 100, 200, 200, 200, 200));
  EXPECT_LT(Milliseconds(Schedule(0.999), 1000, away).back(), 400);
}

TEST(Retry, RetryAfterIsObeyedWithAQuarterOfJitterAtMost) {
  EXPECT_EQ(Schedule(0).WaitAfter(PushedBack("2000")), absl::Milliseconds(2000));
  EXPECT_EQ(Schedule(0.5).WaitAfter(PushedBack("2000")), absl::Milliseconds(2250));
  const auto most = Schedule(0.999).WaitAfter(PushedBack("2000"));
  EXPECT_GT(most, absl::Milliseconds(2499));
  EXPECT_LT(most, absl::Milliseconds(2500));
}

TEST(Retry, ARetryAfterThatIsShortIsNoShorterThanTheBackoff) {
  EXPECT_THAT(Milliseconds(Schedule(0.5), 4, PushedBack("0")), ElementsAre(50, 100, 200, 400));
  EXPECT_THAT(Milliseconds(Schedule(0.5), 3, PushedBack("49")), ElementsAre(55, 100, 200));
  EXPECT_THAT(Milliseconds(Schedule(0.5), 3, PushedBack("80")), ElementsAre(90, 90, 90));
}

TEST(Retry, RetryAfterThatIsNegativeOrNoNumberEndsIt) {
  for (const char* retry_after : {"-1", "", "soon", "1e3", "10ms", "5,6", "99999999999"}) {
    EXPECT_EQ(Schedule(0.5).WaitAfter(PushedBack(retry_after)), std::nullopt) << retry_after;
  }
}

TEST(Retry, RetryAfterGoesBeforeBackoffAndStartsItAfresh) {
  Schedule schedule(0.5);
  AttemptFailure draining = Failure(absl::StatusCode::kUnavailable, "DRAINING");
  schedule.WaitAfter(draining);
  EXPECT_EQ(schedule.WaitAfter(draining), absl::Milliseconds(100));
  draining.retry_after = "800";
  EXPECT_EQ(schedule.WaitAfter(draining), absl::Milliseconds(900));
  draining.retry_after.reset();
  EXPECT_EQ(schedule.WaitAfter(draining), absl::Milliseconds(50));
}

TEST(Retry, OverloadWithoutRetryAfterIsFinal) {
  EXPECT_EQ(Schedule(0.5).WaitAfter(Failure(absl::StatusCode::kResourceExhausted)), std::nullopt);
}

TEST(Retry, ACallThatTheTransportHadNoMemoryForIsTriedAgain) {
  AttemptFailure ended{.status =
                           absl::ResourceExhaustedError("Received RST_STREAM with error code 11")};
  EXPECT_EQ(Schedule(0.5).WaitAfter(ended), absl::Milliseconds(50));
  ended.status = wire::WithReason(std::move(ended.status), "OVER_LIMIT");
  EXPECT_EQ(Schedule(0.5).WaitAfter(ended), std::nullopt);
}

TEST(Retry, ALostWorkerIsTriedAgainAndAFencedAttemptNot) {
  const auto wait = [](const std::string& reason) {
    return Schedule(0.5).WaitAfter(Failure(absl::StatusCode::kAborted, reason));
  };
  EXPECT_EQ(wait("WORKER_LOST"), absl::Milliseconds(50));
  EXPECT_EQ(wait("ATTEMPT_FENCED"), std::nullopt);
  EXPECT_EQ(wait(""), std::nullopt);
}

TEST(Retry, OtherCodesAreFinal) {
  using enum absl::StatusCode;
  for (const absl::StatusCode code :
       {kCancelled, kUnknown, kInvalidArgument, kDeadlineExceeded, kNotFound, kPermissionDenied,
        kFailedPrecondition, kOutOfRange, kUnimplemented, kInternal, kUnauthenticated}) {
    AttemptFailure failure = Failure(code);
    EXPECT_EQ(Schedule(0.5).WaitAfter(failure), std::nullopt) << absl::StatusCodeToString(code);
    failure.retry_after = "10";  // a retry_after changes nothing
    EXPECT_EQ(Schedule(0.5).WaitAfter(failure), std::nullopt) << absl::StatusCodeToString(code);
  }
}

TEST(Retry, ARunningJobIsTriedAgainOnceTheConnectionWasLost) {
  Schedule schedule(0.5);
  const AttemptFailure running = Failure(absl::StatusCode::kAlreadyExists, "JOB_RUNNING");
  EXPECT_EQ(schedule.WaitAfter(running), std::nullopt);
  schedule.WaitAfter(Failure(absl::StatusCode::kUnavailable));
  EXPECT_EQ(schedule.WaitAfter(running), absl::Milliseconds(100));
}

TEST(Retry, DamagedOutputIsTriedAgainTwice) {
  Schedule schedule(0.5);
  AttemptFailure failure = Failure(absl::StatusCode::kDataLoss);
  EXPECT_EQ(schedule.WaitAfter(failure), std::nullopt);  // found by the service
  failure.output_damaged = true;
  EXPECT_TRUE(schedule.WaitAfter(failure).has_value());
  EXPECT_TRUE(schedule.WaitAfter(failure).has_value());
  EXPECT_EQ(schedule.WaitAfter(failure), std::nullopt);
}

}  // namespace
}  // namespace hilbert_ring::client
