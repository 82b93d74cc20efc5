#include "server/process/shared_look.h"

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <optional>

#include "gtest/gtest.h"
#include "tests/support/manual_time.h"

namespace hilbert_ring::server {
namespace {

using testing::Eventually;
using testing::ManualTime;

class SharedLookTest : public ::testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{2};

  std::future<std::optional<int>> Ask() {
    return std::async(std::launch::async, [this] { return look_.Ask(); });
  }

  ManualTime time_;
  std::atomic<int> looks_ = 0;
  std::latch answers_{1};
  SharedLook<int> look_{[this] {
                          const int seen = ++looks_;
                          answers_.wait();
                          return seen;
                        },
                        {.patience = kPatience},
                        time_};
};

TEST_F(SharedLookTest, WhoAsksMeanwhileGetsWhatIsSeen) {
  auto first = Ask();
  ASSERT_TRUE(Eventually([this] { return looks_ == 1; }));
  auto second = Ask();
  ASSERT_TRUE(time_.AwaitWait(kPatience));
  answers_.count_down();
  EXPECT_EQ(first.get(), 1);
  EXPECT_EQ(second.get(), 1);
  EXPECT_EQ(look_.Ask(), 2) << "later it is looked again";
}

TEST_F(SharedLookTest, OneThatHangsKeepsOneThreadAlone) {
  auto first = Ask();
  ASSERT_TRUE(Eventually([this] { return looks_ == 1; }));
  auto second = Ask();
  ASSERT_TRUE(time_.AwaitWait(kPatience));
  time_.Advance(kPatience);
  EXPECT_EQ(second.get(), std::nullopt);
  EXPECT_EQ(look_.Ask(), std::nullopt) << "at once";
  EXPECT_EQ(looks_, 1);
  answers_.count_down();
  EXPECT_EQ(first.get(), 1);
  EXPECT_EQ(look_.Ask(), 2);
}

TEST_F(SharedLookTest, WhoWaitsNoLongerGetsNothing) {
  auto first = Ask();
  ASSERT_TRUE(Eventually([this] { return looks_ == 1; }));
  EXPECT_EQ(look_.Ask([] { return true; }), std::nullopt);
  answers_.count_down();
  EXPECT_EQ(first.get(), 1);
}

TEST_F(SharedLookTest, WhatWasSeenIsGivenOutAgainForAWhile) {
  answers_.count_down();
  SharedLook<int> kept([this] { return ++looks_; },
                       {.patience = kPatience, .kept = std::chrono::milliseconds(500)}, time_);
  EXPECT_EQ(kept.Ask(), 1);
  time_.Advance(std::chrono::milliseconds(499));
  EXPECT_EQ(kept.Ask(), 1);
  time_.Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(kept.Ask(), 2);
}

}  // namespace
}  // namespace hilbert_ring::server
