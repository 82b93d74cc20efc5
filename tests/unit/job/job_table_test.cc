#include "server/job/job_table.h"

#include <optional>

#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

TEST(JobTable, AnAttemptRunsOnce) {
  JobTable table;
  const JobCourse course;
  JobStop a, b;
  {
    const auto entry = table.Enter("", "job", 0, &a, &course);
    ASSERT_TRUE(entry.ok());
    const auto again = table.Enter("", "job", 0, &b, &course);
    EXPECT_TRUE(absl::IsAlreadyExists(again.status()));
    EXPECT_EQ(wire::ReasonOf(again.status()), "JOB_RUNNING");
    EXPECT_TRUE(table.Enter("someone else", "job", 0, &b, &course).ok());
    EXPECT_TRUE(table.Enter("", "another", 0, &b, &course).ok());
  }
  EXPECT_TRUE(table.Enter("", "job", 0, &b, &course).ok()) << "it has ended";
  EXPECT_TRUE(a.why().ok());
}

TEST(JobTable, ANewerAttemptFencesTheOlder) {
  JobTable table;
  const JobCourse course;
  JobStop old_stop, new_stop, late_stop;
  std::optional<JobTable::Entry> old_entry(*table.Enter("", "job", 1, &old_stop, &course));
  const auto new_entry = table.Enter("", "job", 2, &new_stop, &course);
  ASSERT_TRUE(new_entry.ok());
  EXPECT_TRUE(absl::IsAborted(old_stop.why()));
  EXPECT_EQ(wire::ReasonOf(old_stop.why()), "ATTEMPT_FENCED");
  old_entry.reset();  // must not take the newer one's place away
  EXPECT_TRUE(absl::IsAlreadyExists(table.Enter("", "job", 2, &late_stop, &course).status()));
  EXPECT_TRUE(absl::IsAborted(table.Enter("", "job", 0, &late_stop, &course).status()));
  EXPECT_TRUE(new_stop.why().ok());
}

TEST(JobTable, StopsAll) {
  JobTable table;
  const JobCourse course;
  JobStop a, b;
  const auto one = table.Enter("", "a", 0, &a, &course);
  const auto two = table.Enter("", "b", 0, &b, &course);
  a.Request(absl::CancelledError("first"));
  table.StopAll(absl::UnavailableError("stopping"));
  EXPECT_TRUE(absl::IsCancelled(a.why())) << "the first reason counts";
  EXPECT_TRUE(absl::IsUnavailable(b.why()));
}

TEST(JobTable, ACallerSeesItsOwnJobs) {
  JobTable table;
  JobStop stop;
  JobCourse waiting, running, another;
  waiting.SetJob("a", 100);
  const auto one = table.Enter("me", "b", 3, &stop, &running);
  const auto two = table.Enter("me", "a", 0, &stop, &waiting);
  const auto three = table.Enter("mea", "a", 0, &stop, &another);
  running.Enter(JobPhase::kReceiving, 2);
  running.Advance(JobPhase::kReceiving, 0.75);
  const std::vector<v1::Job> jobs = table.List("me");
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].job_id(), "a");
  EXPECT_EQ(jobs[0].state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(jobs[0].tokens(), 100);
  EXPECT_EQ(jobs[0].workers(), 0);
  EXPECT_EQ(jobs[1].job_id(), "b");
  EXPECT_EQ(jobs[1].attempt(), 3);
  EXPECT_EQ(jobs[1].state(), v1::Job::STATE_RECEIVING);
  EXPECT_EQ(jobs[1].workers(), 2);
  EXPECT_EQ(jobs[1].fraction(), 0.75);
  EXPECT_GE(jobs[1].seconds(), 0);
  EXPECT_TRUE(table.List("other_caller").empty());
}

TEST(JobTable, ACallerEndsItsOwnJobs) {
  JobTable table;
  JobStop mine, same_id;
  const JobCourse course;
  {
    const auto one = table.Enter("me", "job", 0, &mine, &course);
    const auto two = table.Enter("you", "job", 0, &same_id, &course);
    EXPECT_TRUE(table.Cancel("me", "job", "ipv4:10.0.0.9:1").ok());
    EXPECT_TRUE(absl::IsCancelled(mine.why()));
    EXPECT_EQ(wire::ReasonOf(mine.why()), "CANCELLED_BY_CALLER");
    EXPECT_NE(mine.why().message().find("ipv4:10.0.0.9:1"), absl::string_view::npos);
    EXPECT_TRUE(same_id.why().ok());
    EXPECT_EQ(wire::ReasonOf(table.Cancel("me", "other", "")), "JOB_NOT_FOUND");
    EXPECT_TRUE(absl::IsNotFound(table.Cancel("they", "job", "")));
  }
  EXPECT_TRUE(absl::IsNotFound(table.Cancel("me", "job", ""))) << "it has ended";
}

}  // namespace
}  // namespace hilbert_ring::server
