// Attend over a service that fails first.
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/attend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/manual_timing.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

grpc::Status Status(absl::StatusCode code, const std::string& reason = "") {
  absl::Status status(code, "from the test");
  if (!reason.empty()) status = wire::WithReason(std::move(status), reason);
  return wire::ToGrpc(status);
}

FakeBehaviour Refuse(absl::StatusCode code, const std::string& reason = "",
                     std::optional<std::string> retry_after = std::nullopt) {
  return {.refuse = Status(code, reason), .retry_after = std::move(retry_after)};
}

FakeBehaviour Gone() { return Refuse(absl::StatusCode::kUnavailable, "NO_WORKERS"); }

std::vector<int> AttemptsOf(const FakeService& service) {
  std::vector<int> attempts;
  for (const FakeRecord& record : service.records()) attempts.push_back(record.open.attempt());
  return attempts;
}

TEST(AttendRetry, EachAttemptIsNumberedUnderOneJobId) {
  const FakeService service({.earlier_calls = {Gone(), Gone()}});
  EchoJob job;
  ManualTiming timing;
  const auto report = job.Attend(service.address(), {.attempt = 5, .timing = timing.timing()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
  EXPECT_EQ(report->retries(), 0);  // retries by the service
  EXPECT_THAT(AttemptsOf(service), ElementsAre(5, 6, 7));
  const std::string drawn = service.records()[0].open.job_id();
  EXPECT_FALSE(drawn.empty());
  for (const FakeRecord& record : service.records()) EXPECT_EQ(record.open.job_id(), drawn);
  EXPECT_THAT(timing.slept, ElementsAre(absl::Milliseconds(50), absl::Milliseconds(100)));
  ASSERT_TRUE(job.Attend(service.address()).ok());
  EXPECT_NE(service.record().open.job_id(), drawn);
}

// A stopping service ends its calls in this way.
TEST(AttendRetry, ACallThatTheServiceCancelsWithoutAWordIsMadeAgain) {
  const grpc::Status cancelled(grpc::StatusCode::CANCELLED, "CANCELLED");
  const FakeService service({.earlier_calls = {{.refuse = cancelled}, {.fail = cancelled}}});
  EchoJob job;
  ManualTiming timing;
  std::vector<std::string> failures;
  const auto report = job.Attend(service.address(),
                                 {.progress =
                                      [&](const AttendProgress& progress) {
                                        if (static_cast<int>(failures.size()) < progress.attempt) {
                                          failures.push_back(progress.last_failure.ToString());
                                        }
                                      },
                                  .timing = timing.timing()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
  EXPECT_THAT(failures, ElementsAre("UNAVAILABLE: the service ended the call",
                                    "UNAVAILABLE: the service ended the call"));
  const FakeService says(Refuse(absl::StatusCode::kCancelled, "CANCELLED_BY_CALLER"));
  EXPECT_EQ(wire::ReasonOf(job.Attend(says.address()).status()), "CANCELLED_BY_CALLER");
  EXPECT_EQ(says.records().size(), 1u);
}

TEST(AttendRetry, AnOutageIsBoundedByItsTimeAndNotByAttempts) {
  const FakeService service({.earlier_calls = std::vector<FakeBehaviour>(30, Gone())});
  for (const absl::Duration deadline : {absl::InfiniteDuration(), absl::Minutes(10)}) {
    EchoJob job;
    ManualTiming timing;
    const auto report = job.Attend(
        service.address(), {.max_attempts = 3, .deadline = deadline, .timing = timing.timing()});
    EXPECT_TRUE(report.ok()) << report.status();
  }
  EXPECT_EQ(AttemptsOf(service).size(), 32u);
}

TEST(AttendRetry, AnOutageEndsTheCallAtItsTimeout) {
  const FakeService service(Gone());
  ManualTiming timing;
  absl::Status status = EchoJob().Attend(service.address(), {.timing = timing.timing()}).status();
  EXPECT_EQ(wire::ReasonOf(status), "NO_WORKERS");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("from the test (after "), HasSubstr("its limit of 30s")));
  EXPECT_GT(timing.total(), kOutageTimeout - absl::Seconds(1));
  EXPECT_LE(timing.total(), kOutageTimeout);
  // With a deadline the outage may last until then, unless it has a limit of its own.
  ManualTiming minutes;
  status =
      EchoJob()
          .Attend(service.address(), {.deadline = absl::Minutes(2), .timing = minutes.timing()})
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("the deadline is in"));
  EXPECT_GT(minutes.total(), absl::Seconds(119));
  ManualTiming seconds;
  EXPECT_FALSE(EchoJob()
                   .Attend(service.address(), {.deadline = absl::Minutes(2),
                                               .outage_timeout = absl::Seconds(5),
                                               .timing = seconds.timing()})
                   .ok());
  EXPECT_LE(seconds.total(), absl::Seconds(5));
}

TEST(AttendRetry, EachOutageHasItsOwnTime) {
  std::vector<FakeBehaviour> calls(20, Gone());
  calls.push_back({.fail = Status(absl::StatusCode::kUnavailable)});  // admitted
  calls.insert(calls.end(), 20, Gone());
  const FakeService service({.earlier_calls = calls});
  EchoJob job;
  ManualTiming timing;
  const auto report = job.Attend(service.address(),
                                 {.outage_timeout = absl::Seconds(5), .timing = timing.timing()});
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_GT(timing.total(), absl::Seconds(5));
}

TEST(AttendRetry, WithADeadlineAServiceThatIsFullIsWaitedFor) {
  const std::vector<FakeBehaviour> full(
      6, Refuse(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "100"));
  for (const auto& [deadline, calls] :
       {std::pair{absl::Minutes(10), 7u}, {absl::InfiniteDuration(), 3u}}) {
    const FakeService service({.earlier_calls = full});
    EchoJob job;
    ManualTiming timing;
    const auto report = job.Attend(
        service.address(), {.max_attempts = 3, .deadline = deadline, .timing = timing.timing()});
    EXPECT_EQ(report.ok(), deadline < absl::InfiniteDuration()) << report.status();
    EXPECT_EQ(AttemptsOf(service).size(), calls);
  }
}

TEST(AttendRetry, OutputsStartAfresh) {
  // 4 MiB each way; most outputs are back before the service ends.
  EchoJob job(1 << 15);
  ManualTiming timing;
  const FakeService service({.earlier_calls = {{.output_while_receiving = true,
                                                .fail = Status(absl::StatusCode::kUnavailable),
                                                .fail_after_chunks = 10}}});
  AttendProgress last;
  int64_t placed_first = 0;
  const auto report = job.Attend(service.address(), {.progress =
                                                         [&](const AttendProgress& progress) {
                                                           if (progress.attempt == 0)
                                                             placed_first = progress.rows_placed;
                                                           last = progress;
                                                         },
                                                     .timing = timing.timing()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
  EXPECT_EQ(last.rows_placed, 1 << 15);
  EXPECT_EQ(last.bytes_sent, last.bytes_to_send);
  EXPECT_GT(placed_first, 0);
}

TEST(AttendRetry, AttemptsAreBounded) {
  const FakeService service(Refuse(absl::StatusCode::kAborted, "WORKER_LOST"));
  ManualTiming timing;
  const absl::Status status =
      EchoJob().Attend(service.address(), {.max_attempts = 4, .timing = timing.timing()}).status();
  EXPECT_EQ(wire::ReasonOf(status), "WORKER_LOST");
  EXPECT_EQ(status.message(), "from the test (after 4 attempts)");
  EXPECT_EQ(service.records().size(), 4u);
  EXPECT_EQ(timing.slept.size(), 3u);
  const FakeService gone(Gone());
  const AttendOptions once{.max_attempts = 1, .deadline = absl::Minutes(10)};
  EXPECT_EQ(EchoJob().Attend(gone.address(), once).status().message(), "from the test");
  EXPECT_EQ(gone.records().size(), 1u);
}

TEST(AttendRetry, NoWaitPassesTheDeadline) {
  const FakeService service({.refuse = Status(absl::StatusCode::kUnavailable, "DRAINING"),
                             .retry_after = "40000"});  // 45 s with jitter
  ManualTiming timing;
  const absl::Status status = EchoJob()
                                  .Attend(service.address(), {.deadline = absl::Seconds(110),
                                                              .spent = absl::Seconds(10),
                                                              .timing = timing.timing()})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(wire::ReasonOf(status), "DRAINING");
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("from the test (after 3 attempts"),
                                                   HasSubstr("45s"), HasSubstr("10s")));
  EXPECT_EQ(timing.total(), absl::Seconds(90));
}

TEST(AttendRetry, WhatTheCallerSaysIsFinalIsNotTriedAgain) {
  const FakeService service({.earlier_calls = {Gone(), Gone()}});
  ManualTiming timing;
  const auto report = EchoJob().Attend(
      service.address(),
      {.final = [](const absl::Status& failure) { return wire::ReasonOf(failure) == "NO_WORKERS"; },
       .timing = timing.timing()});
  EXPECT_EQ(wire::ReasonOf(report.status()), "NO_WORKERS");
  EXPECT_EQ(service.records().size(), 1u);
  EXPECT_TRUE(timing.slept.empty());
}

TEST(AttendRetry, ALimitOfTheServiceIsNotCalledTheJobsDeadline) {
  for (const char* reason : {"JOB_TIMEOUT", "CLIENT_IDLE", "CLIENT_DEADLINE", ""}) {
    const FakeService service(Refuse(absl::StatusCode::kDeadlineExceeded, reason));
    const absl::Status status =
        EchoJob().Attend(service.address(), {.deadline = absl::Minutes(10)}).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_EQ(status.message(), "from the test") << reason;
  }
}

TEST(AttendRetry, CorruptOutputIsTriedAgainAFewTimes) {
  const FakeBehaviour corrupt = {.change_outputs = [](std::vector<v1::OutputChunk>& outputs) {
    (*outputs[3].mutable_payload())[5] ^= 1;
  }};
  EchoJob job;
  ManualTiming timing;
  const auto report =
      job.Attend({.earlier_calls = {corrupt, corrupt}}, {.timing = timing.timing()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(job.echoed());
  const FakeService always(corrupt);
  const absl::Status status = job.Attend(always.address(), {.timing = timing.timing()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("CRC32C"), HasSubstr("after 3 attempts")));
  EXPECT_EQ(always.records().size(), 3u);
}

TEST(AttendRetry, NothingIsTriedAgainAfterCancellation) {
  const FakeService service(Gone());
  ManualTiming timing;
  timing.random = 0.99;
  // Cancelled in the fourth wait, of 792 ms.
  const absl::Status status =
      EchoJob()
          .Attend(service.address(),
                  {.cancelled = [&] { return timing.total() > absl::Milliseconds(900); },
                   .timing = timing.timing()})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("after 4 attempts"), HasSubstr("UNAVAILABLE: from the test")));
  EXPECT_EQ(service.records().size(), 4u);
  EXPECT_LT(timing.total(), absl::Milliseconds(1100));  // cancelled() is called ten times a second
}

}  // namespace
}  // namespace hilbert_ring::client
