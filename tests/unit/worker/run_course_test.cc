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
  RunCourseTest() { course_.Enter(RunPhase::kReceiving); }
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
  EXPECT_FALSE(course_.news().computed);
  course_.EndCompute(absl::CancelledError("third"));
  EXPECT_EQ(course_.failure(), absl::DataLossError("first"));
  EXPECT_TRUE(course_.news().computed);
  course_.Enter(RunPhase::kSending);
  EXPECT_EQ(phase(), RunPhase::kReceiving);
}

TEST_F(RunCourseTest, AWaitForRowsSeesACancellation) {
  cancelled_ = true;
  EXPECT_TRUE(absl::IsCancelled(course_.AwaitRows(1)));
  EXPECT_NE(course_.news().stopped_at, Deadline());
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
  EXPECT_NE(course_.news().entered(RunPhase::kComputing), Deadline());
  course_.AddAllRows(milliseconds(0));
  EXPECT_EQ(phase(), RunPhase::kSending);
}

TEST(RunCourse, AsksForACancellationOnceInAnInterval) {
  int asked = 0;
  const Deadline start = Clock::now();
  RunCourse course([&asked] {
    ++asked;
    return false;
  });
  for (int tile = 0; tile < 1000; ++tile) EXPECT_FALSE(course.IsStopped());
  EXPECT_LE(asked, (Clock::now() - start) / RunCourse::kAskInterval);
}

}  // namespace
}  // namespace hilbert_ring::server
