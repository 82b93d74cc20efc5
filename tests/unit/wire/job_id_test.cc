#include "wire/job_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hilbert_ring::wire {
namespace {

TEST(DrawJobId, DrawsAnotherEachTime) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = DrawJobId();
    EXPECT_THAT(id, ::testing::MatchesRegex("job-[0-9a-f]{16}"));
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000);
}

}  // namespace
}  // namespace hilbert_ring::wire
