#include "server/shard/arrived_rows.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

struct Rows {
  int64_t first, count;
};

std::vector<Rows> ShuffledRuns(int64_t rows, std::mt19937_64& random) {
  std::vector<Rows> runs;
  for (int tensor = 0; tensor < 3; ++tensor) {
    for (int64_t first = 0; first < rows;) {
      const auto count = std::min<int64_t>(rows - first, 1 + static_cast<int64_t>(random() % 3000));
      runs.push_back({first, count});
      first += count;
    }
  }
  std::shuffle(runs.begin(), runs.end(), random);
  return runs;
}

TEST(ArrivedRows, PrefixIsThereAndNotFarBehind) {
  constexpr int64_t kBlock = 1024;
  std::mt19937_64 random(9);
  for (const int64_t rows : {int64_t{1}, kBlock, int64_t{1500}, int64_t{20'000}}) {
    ArrivedRows arrived(std::vector<int64_t>{rows, rows, rows});
    std::vector<int> seen(rows);  // tensors of each row
    EXPECT_EQ(arrived.prefix(), 0);
    for (const Rows& run : ShuffledRuns(rows, random)) {
      arrived.Add(run.first, run.count);
      for (int64_t i = 0; i < run.count; ++i) ++seen[run.first + i];
      const int64_t there =
          std::find_if(seen.begin(), seen.end(), [](int tensors) { return tensors < 3; }) -
          seen.begin();
      EXPECT_LE(arrived.prefix(), there);
      EXPECT_GT(arrived.prefix() + kBlock, there == rows ? rows - 1 : there);
    }
    EXPECT_EQ(arrived.prefix(), rows);
  }
}

// Class tokens are not sent.
TEST(ArrivedRows, UnsentRowsCountAsArrived) {
  const std::vector<int64_t> unsent = {0, 1024};
  ArrivedRows arrived(std::vector<int64_t>{1500, 1500}, unsent);
  for (int tensor = 0; tensor < 2; ++tensor) {
    EXPECT_EQ(arrived.prefix(), 0);
    arrived.Add(1, 1023);
  }
  EXPECT_EQ(arrived.prefix(), 1024);
  for (int tensor = 0; tensor < 2; ++tensor) arrived.Add(1025, 475);
  EXPECT_EQ(arrived.prefix(), 1500);
  const std::vector<int64_t> alone = {0};
  EXPECT_EQ(ArrivedRows(std::vector<int64_t>{1, 1}, alone).prefix(), 1);
}

TEST(ArrivedRows, ATensorWithFewRowsDoesNotHoldOthersBack) {
  ArrivedRows arrived(std::vector<int64_t>{3, 2000});
  arrived.Add(0, 2000);
  EXPECT_EQ(arrived.prefix(), 0);
  arrived.Add(0, 3);
  EXPECT_EQ(arrived.prefix(), 2000);
}

}  // namespace
}  // namespace hilbert_ring::server
