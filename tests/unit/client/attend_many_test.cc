// AttendMany over a service that has no workers at first.
#include "client/cpp/attend_many.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/echo_job.h"
#include "tests/unit/client/fake_small_jobs.h"
#include "tests/unit/client/manual_timing.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Statuses = std::vector<absl::Status>;

absl::Status NoWorkers() {
  return wire::WithReason(absl::UnavailableError("no worker is there"), "NO_WORKERS");
}

absl::Status Aborted(const std::string& reason) {
  return wire::WithReason(absl::AbortedError("as the test says"), reason);
}

// Four jobs, of 10, 11, 12 and 13 tokens.
class AttendManyTest : public ::testing::Test {
 protected:
  std::vector<absl::StatusOr<v1::Report>> Run(FakeSmallJobs::Answer answer,
                                              JobOptions options = {}) {
    const FakeSmallJobs service(std::move(answer));
    std::vector<SmallJob> small;
    for (EchoJob& job : jobs_)
      small.push_back({.inputs = job.inputs(), .outputs = {.out = job.out_}});
    options.timing = timing_.timing();
    auto reports = AttendMany(service.address(), small, options);
    calls_ = service.calls();
    return reports;
  }

  std::vector<EchoJob> jobs_ = {EchoJob(10), EchoJob(11), EchoJob(12), EchoJob(13)};
  ManualTiming timing_;
  std::vector<std::vector<int64_t>> calls_;
};

TEST_F(AttendManyTest, AJobForWhichThereIsNoWorkerIsSentAgain) {
  const auto reports = Run([](int call, int64_t job) -> Statuses {
    if (call == 0 && job == 0) return {NoWorkers()};
    if (call == 0 && job == 2) return {Aborted("WORKER_LOST")};
    if (call == 0 && job == 3) return {Aborted("ROWS_LOST")};
    if (call == 1 && job == 1) return {NoWorkers()};
    return {absl::OkStatus()};
  });
  EXPECT_THAT(calls_,
              ElementsAre(ElementsAre(10, 11, 12, 13), ElementsAre(10, 12), ElementsAre(12)));
  for (const int ended : {0, 1, 2}) {
    EXPECT_TRUE(reports[ended].ok()) << reports[ended].status();
    EXPECT_TRUE(jobs_[ended].echoed()) << ended;
  }
  EXPECT_EQ(wire::ReasonOf(reports[3].status()), "ROWS_LOST");
}

TEST_F(AttendManyTest, AnOutageIsBoundedByItsTime) {
  const auto reports = Run(
      [](int call, int64_t job) -> Statuses {
        if (call == 0 && job == 0) return {absl::InvalidArgumentError("wrong")};
        return {NoWorkers()};
      },
      {.outage_timeout = absl::Seconds(20)});
  EXPECT_EQ(reports[0].status().message(), "wrong");
  for (const int job : {1, 2, 3}) {
    EXPECT_EQ(wire::ReasonOf(reports[job].status()), "NO_WORKERS");
    EXPECT_THAT(std::string(reports[job].status().message()),
                HasSubstr("away for its limit of 20s"));
  }
  EXPECT_GT(calls_.size(), 20u);
  EXPECT_LE(timing_.total(), absl::Seconds(20));
}

TEST_F(AttendManyTest, OneAttemptIsFinal) {
  const auto reports =
      Run([](int, int64_t) -> Statuses { return {NoWorkers()}; }, {.max_attempts = 1});
  EXPECT_EQ(calls_.size(), 1u);
  for (const auto& report : reports) {
    EXPECT_EQ(report.status().message(), "no worker is there");
    EXPECT_EQ(wire::ReasonOf(report.status()), "NO_WORKERS");
  }
}

}  // namespace
}  // namespace hilbert_ring::client
