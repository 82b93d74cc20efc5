#include "engine/device/cpu/key_visibility.h"

#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

// Compares every answer with the mask's definition, in tiles of so many keys. Shifts and positions
// may be anything.
void ExpectDefinition(const AttentionTask& task, const RowRange& rows, int64_t tile) {
  const auto sees = [&](int64_t i, int64_t j) {
    if (task.mask == Mask::kNone) return true;
    if (task.mask == Mask::kDiagonal) return j - i <= task.diagonal_shift;
    return task.key_positions.data[rows.batch * task.key_positions.batch_stride +
                                   j * task.key_positions.row_stride] <=
           task.query_positions.data[rows.batch * task.query_positions.batch_stride +
                                     i * task.query_positions.row_stride];
  };
  KeyVisibility visibility(task, rows);
  for (int64_t j = visibility.key_end(); j < task.key_rows; ++j) {
    for (int64_t i = rows.first; i <= rows.last; ++i) EXPECT_FALSE(sees(i, j));
  }
  for (int64_t begin = 0; begin < task.key_rows; begin += tile) {
    const int64_t count = std::min(tile, task.key_rows - begin);
    const Visible visible = visibility.See({rows.batch, begin, count});
    for (int64_t i = rows.first; i <= rows.last; ++i) {
      for (int64_t j = 0; j < count; ++j) {
        const bool seen = visible == Visible::kEverything ||
                          (visible == Visible::kSome &&
                           visibility.ranks()[j] < static_cast<float>(visibility.Limit(i)));
        EXPECT_EQ(seen, sees(i, begin + j)) << i << " " << begin + j;
      }
    }
  }
}

void ExpectDefinition(const AttentionTask& task, const RowRange& rows) {
  for (const int64_t tile : {kMaxKeyTile / 2, kMaxKeyTile}) ExpectDefinition(task, rows, tile);
}

TEST(KeyVisibility, Diagonal) {
  for (int64_t shift :
       {int64_t{-100}, int64_t{-20}, int64_t{-1}, int64_t{0}, int64_t{64}, int64_t{149},
        int64_t{500}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    const AttentionTask task{
        .query_rows = 90, .key_rows = 150, .mask = Mask::kDiagonal, .diagonal_shift = shift};
    ExpectDefinition(task, {0, 0, 89});
    ExpectDefinition(task, {0, 30, 40});
    ExpectDefinition(task, {0, 89, 89});
  }
}

TEST(KeyVisibility, Positions) {
  constexpr int64_t kGreatest = std::numeric_limits<int64_t>::max();
  std::mt19937_64 random(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t range = round % 3 == 0 ? 5 : round % 3 == 1 ? 200 : kGreatest;
    std::uniform_int_distribution<int64_t> position(round % 2 == 0 ? -range : 0, range);
    std::vector<int64_t> queries(2 * 3 * 50), keys(2 * 150);  // rows three and one apart
    for (int64_t& p : queries) p = position(random);
    for (int64_t& p : keys) p = position(random);
    const AttentionTask task{.batch = 2,
                             .query_rows = 50,
                             .key_rows = 150,
                             .mask = Mask::kPositions,
                             .query_positions = {queries.data(), 150, 3},
                             .key_positions = {keys.data(), 150, 1}};
    ExpectDefinition(task, {0, 0, 49});
    ExpectDefinition(task, {1, 7, 9});
  }
}

TEST(KeyVisibility, NoMask) {
  const AttentionTask task{.query_rows = 5, .key_rows = 70};
  ExpectDefinition(task, {0, 0, 4});
}

}  // namespace
}  // namespace hilbert_ring
