#include "server/job/job_course.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using enum JobPhase;

std::set<std::pair<JobPhase, JobPhase>> Ways() {
  std::set<std::pair<JobPhase, JobPhase>> ways = {
      {kOpen, kValidating},   {kValidating, kSizing},  {kSizing, kQueued},
      {kQueued, kParked},     {kParked, kQueued},      {kQueued, kRing},
      {kRing, kStarting},     {kStarting, kReceiving}, {kReceiving, kComputing},
      {kComputing, kSending}, {kSending, kChecking},   {kChecking, kDone}};
  // A worker was lost.
  for (const JobPhase phase : {kRing, kStarting, kReceiving, kComputing, kSending, kChecking}) {
    ways.insert({phase, kQueued});
  }
  for (int i = 0; i < kJobPhases; ++i) {
    const auto phase = static_cast<JobPhase>(i);
    if (phase != kDone && phase != kFailed) ways.insert({phase, kFailed});
  }
  return ways;
}

TEST(JobPhase, OneFollowsAnotherByTheseWaysAlone) {
  const auto ways = Ways();
  for (int from = 0; from < kJobPhases; ++from) {
    for (int to = 0; to < kJobPhases; ++to) {
      const auto before = static_cast<JobPhase>(from), after = static_cast<JobPhase>(to);
      EXPECT_EQ(MayFollow(before, after), ways.contains({before, after}))
          << NameOf(before) << " -> " << NameOf(after);
    }
  }
}

TEST(JobPhase, EachHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kJobPhases; ++i) names.insert(NameOf(static_cast<JobPhase>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kJobPhases));
  EXPECT_FALSE(names.contains(""));
}

TEST(JobCourse, SaysWhereTheJobIs) {
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
  // Its workers were lost.
  EXPECT_TRUE(course.Enter(kQueued));
  EXPECT_EQ(course.workers(), 0);
  EXPECT_EQ(course.fraction(), 0);
  EXPECT_EQ(course.tokens(), 64);
}

TEST(JobCourse, AWayThatThereIsNoneOfIsSaidToBeNone) {
  JobCourse course;
  EXPECT_FALSE(course.Enter(kSending, 1));
  EXPECT_EQ(course.phase(), kSending);
  EXPECT_TRUE(course.Enter(kFailed));
  EXPECT_FALSE(course.Enter(kFailed));
}

}  // namespace
}  // namespace hilbert_ring::server
