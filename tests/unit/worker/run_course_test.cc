#include "server/worker/run_course.h"

#include <atomic>
#include <chrono>
#include <future>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

class RunCourseTest : public ::testing::Test {
 protected:
  RunCourseTest() {
    for (const RunPhase phase :
         {RunPhase::kReading, RunPhase::kQueued, RunPhase::kAllocating, RunPhase::kReceiving}) {
      course_.Enter(phase);
    }
  }
  std::future<absl::Status> Await(int64_t rows) {
    return std::async(std::launch::async, [this, rows] { return course_.AwaitRows(rows); });
  }
  RunPhase phase() const { return course_.news().phase; }

  std::atomic<bool> cancelled_ = false;
  RunCourse course_{[this] { return cancelled_.load(); }};
};

TEST_F(RunCourseTest, ComputeWaitsForRowsThatAreNotThere) {
  EXPECT_TRUE(course_.AwaitRows(0).ok());
  course_.AddRows(10);
  course_.AddRows(5);  // the count does not fall
  EXPECT_TRUE(course_.AwaitRows(10).ok());
  auto waiting = Await(11);
  EXPECT_EQ(waiting.wait_for(milliseconds(20)), std::future_status::timeout);
  course_.AddRows(11);
  EXPECT_TRUE(waiting.get().ok());
}

TEST_F(RunCourseTest, TheFirstFailureCounts) {
  course_.AddRows(3);
  auto waiting = Await(4);
  course_.Fail(absl::DataLossError("first"));
  course_.Fail(absl::CancelledError("second"));
  EXPECT_EQ(waiting.get(), absl::DataLossError("first"));
  EXPECT_TRUE(course_.AwaitRows(3).ok()) << "these rows are there all the same";
  EXPECT_EQ(phase(), RunPhase::kStopping);
  course_.EndCompute(absl::CancelledError("third"));
  EXPECT_EQ(course_.failure(), absl::DataLossError("first"));
  EXPECT_EQ(phase(), RunPhase::kFailed);
}

TEST_F(RunCourseTest, AWaitForRowsSeesACancellation) {
  cancelled_ = true;
  EXPECT_TRUE(absl::IsCancelled(course_.AwaitRows(1)));
  EXPECT_EQ(phase(), RunPhase::kStopping);
}

TEST_F(RunCourseTest, ADoneRunDoesNotFail) {
  course_.AddAllRows(milliseconds(0));
  EXPECT_EQ(phase(), RunPhase::kComputing);
  course_.EndCompute(absl::OkStatus());
  EXPECT_TRUE(course_.AwaitComputed(std::chrono::hours(1)));
  course_.Enter(RunPhase::kDone);
  course_.Fail(absl::CancelledError("late"));
  EXPECT_TRUE(course_.failure().ok());
  EXPECT_EQ(phase(), RunPhase::kDone);
}

// The worker may read RowsDone after its last result.
TEST_F(RunCourseTest, ComputeMayEndBeforeRowsDone) {
  course_.EndCompute(absl::OkStatus());
  EXPECT_EQ(phase(), RunPhase::kSending);
  EXPECT_NE(course_.entered(RunPhase::kComputing), Deadline());
  course_.AddAllRows(milliseconds(0));
  EXPECT_EQ(phase(), RunPhase::kSending);
}

TEST(RunPhase, OnlyTableTransitionsAreAllowed) {
  static_assert(MayFollow(RunPhase::kReceiving, RunPhase::kComputing));
  static_assert(!MayFollow(RunPhase::kReceiving, RunPhase::kSending));
  static_assert(!MayFollow(RunPhase::kStopping, RunPhase::kSending));
  for (int phase = 0; phase < kRunPhases; ++phase) {
    const auto before = static_cast<RunPhase>(phase);
    EXPECT_EQ(MayFollow(before, PhaseAfterFailure(before)),
              !HasEnded(before) && before != RunPhase::kStopping);
    EXPECT_FALSE(MayFollow(RunPhase::kDone, before));
    EXPECT_FALSE(MayFollow(RunPhase::kFailed, before));
  }
}

TEST(RunMode, AShortRunInSharedMemoryHasItsCallsThreadAlone) {
  const RunTraits traits{.in_place = true, .flops = kShortFlops};
  RunTraits exchanges = traits, there = traits, apart = traits, longer = traits;
  exchanges.exchanges = true;
  there.rows_there = true;
  apart.in_place = false;
  longer.flops *= 2;
  EXPECT_EQ(ModeOf(traits), RunMode::kCallThread);
  EXPECT_EQ(ModeOf(there), RunMode::kOneMessage);
  for (const RunTraits& run : {exchanges, apart, longer}) EXPECT_EQ(ModeOf(run), RunMode::kThreads);
}

}  // namespace
}  // namespace hilbert_ring::server
