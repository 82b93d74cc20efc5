#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "engine/order/permutation.h"
#include "engine/plan/plan.h"
#include "gtest/gtest.h"
#include "server/rows/row_router.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::server {
namespace {

class CountingOrder final : public Permutation {
 public:
  explicit CountingOrder(int64_t tokens) : tokens_(tokens) {}
  int64_t resident_bytes() const override { return 0; }
  void Tokens(int64_t first_slot, std::span<int64_t> tokens) const override {
    Slots(first_slot, tokens);
  }
  void Slots(int64_t first_token, std::span<int64_t> slots) const override {
    asked_ += static_cast<int64_t>(slots.size());
    most_at_once_ = std::max(most_at_once_, static_cast<int64_t>(slots.size()));
    for (size_t i = 0; i < slots.size(); ++i) {
      slots[i] = tokens_ - 1 - first_token - static_cast<int64_t>(i);
    }
  }

  int64_t asked() const { return asked_; }
  int64_t most_at_once() const { return most_at_once_; }

 private:
  const int64_t tokens_;
  mutable int64_t asked_ = 0, most_at_once_ = 0;
};

JobSpec OrderedSpec(int64_t tokens) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 1, .dim = 8});
  spec.ordering = Ordering{};
  return spec;
}

TEST(VisitPlaces, RoutesEachRowOnceInPieces) {
  constexpr int64_t kTokens = 100'000;
  constexpr int64_t kPiece = 4096;
  constexpr int kRanks = 16;
  const JobSpec spec = OrderedSpec(kTokens);
  const Plan plan = *MakePlan(spec, kRanks);
  const auto order = std::make_shared<CountingOrder>(kTokens);
  const RowRouter router(spec, plan, order);
  RowSet rows(kTokens);
  rows.Add(10, 30'000);
  rows.Add(32'000, kTokens);
  std::vector<int64_t> of_rank(kRanks);
  std::vector<int64_t> slots;
  const absl::Status status =
      VisitPlaces(router, v1::TENSOR_K, rows, kPiece, [&](const std::vector<RowRun>& runs) {
        for (const RowRun& run : runs) {
          of_rank[run.rank] += run.rows;
          for (int64_t i = 0; i < run.rows; ++i) {
            for (const ShardRange& range : plan.shards.OfRank(run.rank)) {
              const int64_t ahead = run.local_row + i - range.local_begin;
              if (ahead >= 0 && ahead < range.size()) slots.push_back(range.begin + ahead);
            }
          }
        }
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(order->asked(), rows.count());
  EXPECT_LE(order->most_at_once(), kPiece);
  ASSERT_EQ(static_cast<int64_t>(slots.size()), rows.count());
  size_t i = 0;
  for (const auto& [begin, end] : rows.ranges()) {
    for (int64_t token = begin; token < end; ++token) {
      ASSERT_EQ(slots[i++], kTokens - 1 - token);
    }
  }
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_GT(of_rank[rank], 0) << rank;
}

}  // namespace
}  // namespace hilbert_ring::server
