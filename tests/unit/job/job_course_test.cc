#include "server/job/job_course.h"

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using enum JobPhase;

TEST(JobCourse, ReportsPhaseAndFraction) {
  JobCourse course;
  EXPECT_EQ(course.phase(), kOpen);
  course.SetJob("job", 64);
  EXPECT_TRUE(course.Enter(kValidating));
  EXPECT_TRUE(course.Enter(kSizing));
  EXPECT_TRUE(course.Enter(kQueued));
  EXPECT_TRUE(course.Enter(kRing, 3));
  EXPECT_TRUE(course.Enter(kStarting, 3));
  EXPECT_TRUE(course.Enter(kReceiving, 3));
  course.Advance(kReceiving, 0.5);
  EXPECT_EQ(course.fraction(), 0.5);
  course.Advance(kComputing, 0.25);  // of the first rows
  EXPECT_EQ(course.fraction(), 0.5);
  EXPECT_TRUE(course.Enter(kComputing, 3));
  EXPECT_EQ(course.fraction(), 0);
  course.Advance(kComputing, 7);
  EXPECT_EQ(course.fraction(), 1);
  EXPECT_EQ(course.workers(), 3);
  // The job has lost its workers.
  EXPECT_TRUE(course.Enter(kQueued));
  EXPECT_EQ(course.workers(), 0);
  EXPECT_EQ(course.fraction(), 0);
  EXPECT_EQ(course.tokens(), 64);
}

TEST(JobCourse, RejectsAnUnknownTransition) {
  JobCourse course;
  EXPECT_FALSE(course.Enter(kSending, 1));
  EXPECT_EQ(course.phase(), kSending);
  EXPECT_TRUE(course.Enter(kFailed));
  EXPECT_FALSE(course.Enter(kFailed));
}

}  // namespace
}  // namespace hilbert_ring::server
