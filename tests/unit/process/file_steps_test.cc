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
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/manual_time.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

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

  // The message of a step of a caller that does not begin; empty: it did.
  std::string Refused(const std::string& caller) {
    Patience patience = PatienceFor(seconds(60));
    patience.caller = caller;
    bool begun = false;
    const absl::Status status = steps_.Run<absl::Status>(patience, [&begun] {
      begun = true;
      return absl::OkStatus();
    });
    EXPECT_EQ(begun, status.ok());
    EXPECT_EQ(wire::ReasonOf(status), begun ? "OK" : "MODEL_UNUSABLE");
    EXPECT_EQ(absl::IsUnavailable(status), !begun);
    return std::string(status.message());
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

TEST_F(FileStepsTest, WhatAStepOwnsIsGoneWhenItHasEnded) {
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(steps_
                    .Run<absl::Status>(PatienceFor(seconds(60)),
                                       [owned = owned_] { return absl::OkStatus(); })
                    .ok());
    ASSERT_EQ(owned_.use_count(), 1);
  }
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

TEST_F(FileStepsTest, AStepThatHasEndedCountsThoughItsCallerHasGone) {
  std::atomic<bool> ended = false;
  const auto gone = [&ended]() -> absl::Status {
    while (!ended) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(20));
    return absl::CancelledError("the client left");
  };
  // The step lasts beyond the first look at the client.
  EXPECT_EQ(steps_.Run<absl::Status>(PatienceFor(seconds(60), gone),
                                     [&ended] {
                                       std::this_thread::sleep_for(milliseconds(60));
                                       ended = true;
                                       return absl::OkStatus();
                                     }),
            absl::OkStatus());
}

TEST_F(FileStepsTest, WhileManyAreLeftNoOtherBegins) {
  for (int i = 0; i < FileSteps::kMostLeft; ++i) {
    Patience patience = PatienceFor(seconds(0));
    patience.caller = absl::StrCat("caller ", i);
    EXPECT_FALSE(steps_.Run<absl::Status>(patience, Hung()).ok());
  }
  EXPECT_EQ(steps_.left(), FileSteps::kMostLeft);
  EXPECT_THAT(Refused("another"), HasSubstr("--model-dir: not tried, for 64 steps before it"));
  // What is given up is destroyed all the same.
  std::shared_ptr<int> other = std::make_shared<int>(2);
  const std::weak_ptr<int> watched = other;
  steps_.Destroy(std::move(other), seconds(60));
  EXPECT_TRUE(watched.expired());
  latch_->count_down();
  steps_.AwaitLeft(seconds(60));
  EXPECT_EQ(steps_.left(), 0);
  EXPECT_EQ(Refused("another"), "");
}

TEST_F(FileStepsTest, NoCallerTakesThoseOfAllOthers) {
  Patience patience = PatienceFor(seconds(0));
  patience.caller = "lab";
  for (int i = 0; i < FileSteps::kMostLeftOfCaller; ++i) {
    EXPECT_FALSE(steps_.Run<absl::Status>(patience, Hung()).ok());
  }
  EXPECT_THAT(Refused("lab"), HasSubstr("not tried, for 16 steps of this caller before it"));
  EXPECT_EQ(Refused("eye"), "");
  latch_->count_down();
  steps_.AwaitLeft(seconds(60));
  EXPECT_EQ(Refused("lab"), "");
}

TEST_F(FileStepsTest, ThoseThatAreLeftAreAwaitedForSoLong) {
  EXPECT_FALSE(steps_.Run<absl::Status>(PatienceFor(seconds(0)), Hung()).ok());
  const Deadline begun = Clock::now();
  steps_.AwaitLeft(milliseconds(50));
  EXPECT_GE(Clock::now() - begun, milliseconds(50));
  EXPECT_EQ(steps_.left(), 1);
  latch_->count_down();
}

// As an output that is removed where it lies.
struct SlowToGo {
  explicit SlowToGo(std::shared_ptr<std::latch> latch) : latch_(std::move(latch)) {}
  ~SlowToGo() { latch_->wait(); }
  SlowToGo(const SlowToGo&) = delete;
  SlowToGo& operator=(const SlowToGo&) = delete;

  const std::shared_ptr<std::latch> latch_;
};

TEST_F(FileStepsTest, WhatTakesLongToDestroyIsLeft) {
  steps_.Destroy(std::make_shared<SlowToGo>(latch_), milliseconds(50));
  EXPECT_EQ(steps_.left(), 1);
  latch_->count_down();
  EXPECT_TRUE(testing::Eventually([this] { return steps_.left() == 0; }));
}

TEST(FileSteps, AreNotWaitedForWhenTheyAreDestroyed) {
  const auto latch = std::make_shared<std::latch>(1);
  const auto ended = std::make_shared<std::latch>(1);
  {
    FileSteps steps;
    EXPECT_FALSE(steps
                     .Run<absl::Status>(PatienceFor(seconds(0)),
                                        [latch, ended] {
                                          latch->wait();
                                          ended->count_down();
                                          return absl::OkStatus();
                                        })
                     .ok());
  }
  latch->count_down();
  ended->wait();
}

TEST(FileSteps, WithoutAThreadNothingBegins) {
  bool threads = false;
  FileSteps steps([&](std::function<void()> body) -> absl::StatusOr<std::thread> {
    if (!threads) return absl::ResourceExhaustedError("no threads");
    return StartThread(std::move(body));
  });
  bool begun = false;
  EXPECT_EQ(steps.Run<absl::Status>(PatienceFor(seconds(60)),
                                    [&begun] {
                                      begun = true;
                                      return absl::OkStatus();
                                    }),
            absl::ResourceExhaustedError("no threads"));
  EXPECT_FALSE(begun);
  EXPECT_EQ(steps.left(), 0);
  const auto owned = std::make_shared<int>(1);
  steps.Destroy(owned, seconds(60));
  EXPECT_EQ(owned.use_count(), 2) << "it is not this thread that destroys it";
  threads = true;
  steps.Destroy(nullptr, seconds(60));
  EXPECT_EQ(owned.use_count(), 1) << "the next one does";
  threads = false;
  steps.Destroy(owned, seconds(60));  // and at its end nobody
}

}  // namespace
}  // namespace hilbert_ring::server
