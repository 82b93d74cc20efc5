#include "server/cluster/suspects.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(Suspects, AreQuarantinedAfterWrongRowsInTwoJobs) {
  std::vector<const Member*> quarantined;
  Suspects suspects([&](const Member& worker) { quarantined.push_back(&worker); });
  const auto a = std::make_shared<Member>();
  const auto b = std::make_shared<Member>();
  std::vector<int64_t> jobs(6);
  for (int64_t& job : jobs) job = suspects.NumberJob();
  EXPECT_FALSE(suspects.Note(a, jobs[1]));
  EXPECT_FALSE(suspects.Note(b, jobs[1]));
  EXPECT_FALSE(suspects.Note(a, jobs[1]));
  EXPECT_TRUE(quarantined.empty());
  EXPECT_TRUE(suspects.Note(a, jobs[2]));
  EXPECT_TRUE(suspects.Note(a, jobs[3]));
  EXPECT_EQ(quarantined, (std::vector<const Member*>{a.get()}));
  EXPECT_FALSE(suspects.Note(std::make_shared<Member>(), jobs[4]));
  EXPECT_FALSE(suspects.Note(std::make_shared<Member>(), jobs[5]));
  EXPECT_TRUE(suspects.Note(b, jobs[5]));
}

}  // namespace
}  // namespace hilbert_ring::server
