#include "server/shard/job_shape.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;

// Slides of 3 and 4 tiles: tokens 0 and 4 are class tokens.
JobShape TwoSlides(int64_t class_tokens) {
  const std::vector<int64_t> tiles = {3, 4};
  RowSizes rows;
  rows.Set(TensorKind::kTiles, 8);
  const auto slides = std::make_shared<SlideRows>(tiles, class_tokens);
  return {PlainSpec({.tokens = slides->tokens()}), rows, slides};
}

TEST(JobShape, ClassTokensAreNotSent) {
  const JobShape shape = TwoSlides(1);
  const auto shards = Shards::Make(2, {{.begin = 0, .end = 2, .rank = 0},
                                       {.begin = 2, .end = 6, .rank = 1},
                                       {.begin = 6, .end = 9, .rank = 0}});
  EXPECT_THAT(shape.UnsentRows(shards, 0), ElementsAre(0));
  EXPECT_THAT(shape.UnsentRows(shards, 1), ElementsAre(2));
  EXPECT_EQ(shape.RowsOf(TensorKind::kTiles), 7);
  EXPECT_EQ(shape.RowsOf(TensorKind::kStates), 9);
}

}  // namespace
}  // namespace hilbert_ring::server
