#include "client/cpp/resend_queue.h"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/resend_request.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;

Ranges Drain(RowRanges ranges, int64_t most_rows) {
  Ranges taken;
  while (!ranges.empty()) {
    const RowRanges::Range range = ranges.Take(most_rows);
    taken.emplace_back(range.first_row, range.rows);
  }
  return taken;
}

TEST(RowRanges, AreASetOfRows) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    RowRanges ranges;
    std::set<int64_t> rows;
    for (int i = 0; i < 20; ++i) {
      const int64_t first = random() % 60;
      const int64_t count = 1 + random() % 8;
      const size_t before = rows.size();
      for (int64_t row = first; row < first + count; ++row) rows.insert(row);
      EXPECT_EQ(ranges.Add({.first_row = first, .rows = count}),
                static_cast<int64_t>(rows.size() - before));
    }
    std::vector<int64_t> taken;
    for (const auto& [first, count] : Drain(ranges, 7)) {
      for (int64_t row = first; row < first + count; ++row) taken.push_back(row);
    }
    EXPECT_EQ(taken, std::vector<int64_t>(rows.begin(), rows.end()));
  }
}

TEST(ResendQueueTest, RowsOfATokenTravelTogether) {
  const JobTensors tensors = {.ahead = {{.tensor = v1::TENSOR_COORDS, .rows = 50, .row_bytes = 8}},
                              .bands = {{.tensor = v1::TENSOR_Q, .rows = 50, .row_bytes = 64},
                                        {.tensor = v1::TENSOR_K, .rows = 50, .row_bytes = 32},
                                        {.tensor = v1::TENSOR_V, .rows = 50, .row_bytes = 64}}};
  ResendQueue queue(tensors);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.Add(Request(v1::TENSOR_V, {{0, 10}})), 10 * 64);
  EXPECT_EQ(queue.Add(Request(v1::TENSOR_Q, {{0, 10}, {30, 1}})), 11 * 64);
  EXPECT_EQ(queue.Add(Request(v1::TENSOR_K, {{0, 10}})), 10 * 32);
  EXPECT_EQ(queue.Add(Request(v1::TENSOR_K, {{5, 5}})), 0);
  EXPECT_EQ(queue.Add(Request(v1::TENSOR_COORDS, {{48, 2}})), 2 * 8);
  std::vector<std::string> order;
  while (!queue.empty()) {
    const auto rows = queue.Take([](const InputTensor&) { return 6; });
    order.push_back(std::to_string(rows.input->tensor) + ":" +
                    std::to_string(rows.range.first_row) + "+" + std::to_string(rows.range.rows));
  }
  EXPECT_THAT(
      order, ElementsAre("1:48+2", "2:0+6", "3:0+6", "4:0+6", "2:6+4", "3:6+4", "4:6+4", "2:30+1"));
}

}  // namespace
}  // namespace hilbert_ring::client
