#include "server/process/file_steps.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/support/manual_time.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Patience PatienceFor(Clock::duration limit, std::function<absl::Status()> why_leave = nullptr) {
  return {.what = "--model-dir",
          .reason = wire::reason::kModelUnusable,
          .limit = limit,
          .flag = "--some-limit",
          .why_leave = std::move(why_leave)};
}

class FileStepsTest : public ::testing::Test {
 protected:
  // Does not answer until the latch is counted down; what it owns tells when it is gone.
  std::function<absl::Status()> Hung() {
    return [latch = latch_, owned = owned_] {
      latch->wait();
      return absl::OkStatus();
    };
  }

  const std::shared_ptr<std::latch> latch_ = std::make_shared<std::latch>(1);
  std::shared_ptr<int> owned_ = std::make_shared<int>(1);
  FileSteps steps_;
};

TEST_F(FileStepsTest, WhatAStepReturnsIsReturned) {
  const auto number = steps_.Run<absl::StatusOr<std::unique_ptr<int>>>(
      PatienceFor(seconds(60)), [] { return std::make_unique<int>(7); });
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(**number, 7);
  EXPECT_EQ(steps_.Run<absl::Status>(PatienceFor(seconds(60)),
                                     [] { return absl::DataLossError("gone"); }),
            absl::DataLossError("gone"));
  EXPECT_EQ(steps_.left(), 0);
}

TEST_F(FileStepsTest, OneThatDoesNotAnswerIsLeftAndOwnsWhatItUses) {
  const Deadline begun = Clock::now();
  const absl::Status status = steps_.Run<absl::Status>(PatienceFor(milliseconds(200)), Hung());
  EXPECT_GE(Clock::now() - begun, milliseconds(200));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "MODEL_UNUSABLE");
  EXPECT_EQ(std::string(status.message()), "--model-dir: no answer within 200 ms (--some-limit)");
  EXPECT_EQ(steps_.left(), 1);
  EXPECT_EQ(owned_.use_count(), 2);
  latch_->count_down();
  EXPECT_TRUE(testing::Eventually([this] { return steps_.left() == 0; }));
  EXPECT_EQ(owned_.use_count(), 1);
}

TEST_F(FileStepsTest, WhoHasAReasonLeavesLongBeforeTheLimit) {
  std::atomic<bool> gone = false;
  std::jthread client([&gone] {
    std::this_thread::sleep_for(milliseconds(50));
    gone = true;
  });
  const absl::Status status =
      steps_.Run<absl::Status>(PatienceFor(std::chrono::hours(1),
                                           [&gone]() -> absl::Status {
                                             if (!gone) return absl::OkStatus();
                                             return absl::CancelledError("the client left");
                                           }),
                               Hung());
  EXPECT_EQ(status, absl::CancelledError("the client left"));
  EXPECT_EQ(steps_.left(), 1);
  latch_->count_down();
}

}  // namespace
}  // namespace hilbert_ring::server
