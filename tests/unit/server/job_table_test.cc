#include "server/coordinator/job_table.h"

#include <optional>

#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

TEST(JobTable, AnAttemptRunsOnce) {
  JobTable table;
  JobStop a, b;
  {
    const auto entry = table.Enter("", "job", 0, &a);
    ASSERT_TRUE(entry.ok());
    const auto again = table.Enter("", "job", 0, &b);
    EXPECT_TRUE(absl::IsAlreadyExists(again.status()));
    EXPECT_EQ(wire::ReasonOf(again.status()), "JOB_RUNNING");
    EXPECT_TRUE(table.Enter("someone else", "job", 0, &b).ok());
    EXPECT_TRUE(table.Enter("", "another", 0, &b).ok());
  }
  EXPECT_TRUE(table.Enter("", "job", 0, &b).ok()) << "it has ended";
  EXPECT_TRUE(a.why().ok());
}

TEST(JobTable, ANewerAttemptFencesTheOlder) {
  JobTable table;
  JobStop old_stop, new_stop, late_stop;
  std::optional<JobTable::Entry> old_entry(*table.Enter("", "job", 1, &old_stop));
  const auto new_entry = table.Enter("", "job", 2, &new_stop);
  ASSERT_TRUE(new_entry.ok());
  EXPECT_TRUE(absl::IsAborted(old_stop.why()));
  EXPECT_EQ(wire::ReasonOf(old_stop.why()), "ATTEMPT_FENCED");
  old_entry.reset();  // must not take the newer one's place away
  EXPECT_TRUE(absl::IsAlreadyExists(table.Enter("", "job", 2, &late_stop).status()));
  EXPECT_TRUE(absl::IsAborted(table.Enter("", "job", 0, &late_stop).status()));
  EXPECT_TRUE(new_stop.why().ok());
}

TEST(JobTable, StopsAll) {
  JobTable table;
  JobStop a, b;
  const auto one = table.Enter("", "a", 0, &a);
  const auto two = table.Enter("", "b", 0, &b);
  a.Request(absl::CancelledError("first"));
  table.StopAll(absl::UnavailableError("stopping"));
  EXPECT_TRUE(absl::IsCancelled(a.why())) << "the first reason counts";
  EXPECT_TRUE(absl::IsUnavailable(b.why()));
}

}  // namespace
}  // namespace hilbert_ring::server
