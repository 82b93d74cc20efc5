#include "engine/model/files/slide_rows.h"

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

class Slides : public ::testing::TestWithParam<int64_t> {};

TEST_P(Slides, EveryTokenIsATileOrAClassToken) {
  const std::vector<int64_t> lengths = {3, 1, 1, 7, 2};
  const SlideRows rows(lengths, GetParam());
  std::vector<int64_t> tile_of_token, slide_of_token;  // -1: the class token
  int64_t tiles = 0;
  for (size_t slide = 0; slide < lengths.size(); ++slide) {
    for (int64_t i = -GetParam(); i < lengths[slide]; ++i) {
      tile_of_token.push_back(i < 0 ? -1 : tiles++);
      slide_of_token.push_back(static_cast<int64_t>(slide));
    }
  }
  const auto tokens = static_cast<int64_t>(tile_of_token.size());
  ASSERT_EQ(rows.tokens(), tokens);
  ASSERT_EQ(rows.tiles(), tiles);
  for (int64_t token = 0; token < tokens; ++token) {
    EXPECT_EQ(rows.SlideOf(token), slide_of_token[token]);
  }
  for (int64_t begin = 0; begin <= tokens; ++begin) {
    for (int64_t end = begin; end <= tokens; ++end) {
      int64_t first = tiles, count = 0;
      for (int64_t token = end - 1; token >= begin; --token) {
        if (tile_of_token[token] < 0) continue;
        first = tile_of_token[token];
        ++count;
      }
      const SlideRows::Tiles found = rows.TilesOf(begin, end);
      EXPECT_EQ(found.end - found.begin, count) << begin << " to " << end;
      if (count == 0) continue;
      EXPECT_EQ(found.begin, first) << begin << " to " << end;
    }
  }
  for (int64_t first = 0; first < tiles; ++first) {
    for (int64_t count = 0; count <= tiles - first; ++count) {
      int64_t next = first;
      for (const TileSpan& run : rows.RunsOf(first, count)) {
        EXPECT_EQ(run.first_tile, next);
        for (int64_t i = 0; i < run.tiles; ++i) {
          EXPECT_EQ(tile_of_token[run.first_token + i], next++);
        }
      }
      EXPECT_EQ(next, first + count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ClassTokens, Slides, ::testing::Values(0, 1));

}  // namespace
}  // namespace hilbert_ring
