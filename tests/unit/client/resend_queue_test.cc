#include "client/cpp/resend_queue.h"

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ranges = std::vector<std::pair<int64_t, int64_t>>;  // first row, rows

Ranges Drain(RowRanges ranges, int64_t most_rows) {
  Ranges taken;
  while (!ranges.empty()) {
    const RowRanges::Range range = ranges.Take(most_rows);
    taken.emplace_back(range.first_row, range.rows);
  }
  return taken;
}

TEST(RowRanges, TakenInOrderAndInPieces) {
  RowRanges ranges;
  EXPECT_EQ(ranges.Add({.first_row = 20, .rows = 5}), 5);
  EXPECT_EQ(ranges.Add({.first_row = 3, .rows = 2}), 2);
  EXPECT_THAT(Drain(ranges, 100), ElementsAre(std::pair(3, 2), std::pair(20, 5)));
  EXPECT_THAT(Drain(ranges, 2),
              ElementsAre(std::pair(3, 2), std::pair(20, 2), std::pair(22, 2), std::pair(24, 1)));
}

TEST(RowRanges, RowsThatWaitAreNotAddedTwice) {
  RowRanges ranges;
  ranges.Add({.first_row = 10, .rows = 10});
  EXPECT_EQ(ranges.Add({.first_row = 12, .rows = 3}), 0);  // inside
  EXPECT_EQ(ranges.Add({.first_row = 20, .rows = 5}), 5);  // right behind
  EXPECT_EQ(ranges.Add({.first_row = 8, .rows = 4}), 2);   // over the start
  EXPECT_EQ(ranges.Add({.first_row = 40, .rows = 5}), 5);
  EXPECT_EQ(ranges.Add({.first_row = 0, .rows = 100}), 78);  // over all
  EXPECT_THAT(Drain(ranges, 1000), ElementsAre(std::pair(0, 100)));
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
      EXPECT_LE(ranges.size(), rows.size());
    }
    std::vector<int64_t> taken;
    for (const auto& [first, count] : Drain(ranges, 7)) {
      for (int64_t row = first; row < first + count; ++row) taken.push_back(row);
    }
    EXPECT_EQ(taken, std::vector<int64_t>(rows.begin(), rows.end()));
  }
}

class ResendQueueTest : public ::testing::Test {
 protected:
  ResendQueueTest() { Resize(50); }

  static v1::Resend Request(v1::Tensor tensor, const Ranges& ranges, int attempt = 3) {
    v1::Resend resend;
    resend.set_attempt(attempt);
    resend.set_tensor(tensor);
    for (const auto& [first, rows] : ranges) {
      v1::Resend::Range& range = *resend.add_ranges();
      range.set_first_row(first);
      range.set_rows(rows);
    }
    return resend;
  }

  std::string Refused(const v1::Resend& resend) const {
    const absl::Status status = ResendQueue(tensors_, 3).Add(resend).status();
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    return std::string(status.message());
  }

  void Resize(int64_t rows) {
    tensors_.bands = {{.tensor = v1::TENSOR_Q, .rows = rows, .row_bytes = 64},
                      {.tensor = v1::TENSOR_K, .rows = rows, .row_bytes = 32},
                      {.tensor = v1::TENSOR_V, .rows = rows, .row_bytes = 64}};
  }

  JobTensors tensors_;
};

TEST_F(ResendQueueTest, RowsOfATokenTravelTogether) {
  tensors_.ahead = {{.tensor = v1::TENSOR_COORDS, .rows = 50, .row_bytes = 8}};
  ResendQueue queue(tensors_, 3);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(*queue.Add(Request(v1::TENSOR_V, {{0, 10}})), 10 * 64);
  EXPECT_EQ(*queue.Add(Request(v1::TENSOR_Q, {{0, 10}, {30, 1}})), 11 * 64);
  EXPECT_EQ(*queue.Add(Request(v1::TENSOR_K, {{0, 10}})), 10 * 32);
  EXPECT_EQ(*queue.Add(Request(v1::TENSOR_K, {{5, 5}})), 0);
  EXPECT_EQ(*queue.Add(Request(v1::TENSOR_COORDS, {{48, 2}})), 2 * 8);
  std::vector<std::string> order;
  while (!queue.empty()) {
    const auto rows = queue.Take([](const InputTensor&) { return 6; });
    order.push_back(std::to_string(rows.input->tensor) + ":" +
                    std::to_string(rows.range.first_row) + "+" + std::to_string(rows.range.rows));
  }
  EXPECT_THAT(
      order, ElementsAre("1:48+2", "2:0+6", "3:0+6", "4:0+6", "2:6+4", "3:6+4", "4:6+4", "2:30+1"));
}

TEST_F(ResendQueueTest, RefusesOtherAttempts) {
  EXPECT_THAT(Refused(Request(v1::TENSOR_Q, {{0, 1}}, 2)),
              HasSubstr("attempt is 2, this one is 3"));
}

TEST_F(ResendQueueTest, RefusesTensorsThatTheJobDoesNotSend) {
  for (const int tensor : {0, 1, 5, 6, 7, -1}) {  // COORDS among them: no ordering
    EXPECT_THAT(Refused(Request(static_cast<v1::Tensor>(tensor), {{0, 1}})), HasSubstr("tensor is"))
        << tensor;
  }
}

TEST_F(ResendQueueTest, RefusesRangesOutsideTheTensor) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const auto& range : Ranges{{0, 51},
                                  {50, 1},
                                  {49, 2},
                                  {-1, 1},
                                  {0, 0},
                                  {3, -1},
                                  {kMost, 1},
                                  {1, kMost},
                                  {kMost, kMost},
                                  {kLeast, kLeast},
                                  {kLeast, 1}}) {
    EXPECT_THAT(Refused(Request(v1::TENSOR_K, {range})), HasSubstr("expected rows in [0, 50)"));
    EXPECT_THAT(Refused(Request(v1::TENSOR_K, {{0, 1}, range})), HasSubstr("expected rows"));
  }
  EXPECT_THAT(Refused(Request(v1::TENSOR_K, {})), HasSubstr("no ranges"));
}

TEST_F(ResendQueueTest, RefusesMoreRowsThanThereAre) {
  EXPECT_THAT(Refused(Request(v1::TENSOR_K, {{0, 30}, {10, 21}})), HasSubstr("more than its 50"));
  EXPECT_TRUE(ResendQueue(tensors_, 3).Add(Request(v1::TENSOR_K, {{0, 30}, {10, 20}})).ok());
}

TEST_F(ResendQueueTest, RefusesMoreRangesThanItHolds) {
  Resize(int64_t{1} << 23);
  ResendQueue queue(tensors_, 3);
  Ranges every_other;
  for (int64_t row = 0; every_other.size() < ResendQueue::kMaxRanges; row += 2) {
    every_other.emplace_back(row, 1);
  }
  ASSERT_TRUE(queue.Add(Request(v1::TENSOR_Q, every_other)).ok());
  EXPECT_THAT(std::string(queue.Add(Request(v1::TENSOR_V, {{0, 1}})).status().message()),
              HasSubstr("ranges are waiting"));
}

}  // namespace
}  // namespace hilbert_ring::client
