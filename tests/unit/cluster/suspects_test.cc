#include "server/cluster/suspects.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(Suspects, AreDistrustedAfterWrongRowsInTwoJobs) {
  std::vector<const Member*> distrusted;
  Suspects suspects([&](const Member& worker) { distrusted.push_back(&worker); });
  const auto a = std::make_shared<Member>();
  const auto b = std::make_shared<Member>();
  EXPECT_FALSE(suspects.Note(a, "job 1"));
  EXPECT_FALSE(suspects.Note(b, "job 1"));
  EXPECT_FALSE(suspects.Note(a, "job 1"));  // another attempt of it
  EXPECT_TRUE(distrusted.empty());
  EXPECT_TRUE(suspects.Note(a, "job 2"));
  EXPECT_TRUE(suspects.Note(a, "job 3"));
  EXPECT_EQ(distrusted, (std::vector<const Member*>{a.get()}));
  // Another process in its place starts with a clean sheet.
  EXPECT_FALSE(suspects.Note(std::make_shared<Member>(), "job 4"));
  EXPECT_FALSE(suspects.Note(std::make_shared<Member>(), "job 5"));
  EXPECT_TRUE(suspects.Note(b, "job 5"));
}

}  // namespace
}  // namespace hilbert_ring::server
