#include "engine/plan/shard_layout.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring {
namespace {

constexpr TensorKind kTensors[] = {TensorKind::kQ, TensorKind::kK, TensorKind::kV, TensorKind::kOut,
                                   TensorKind::kLse};

TEST(ShardLayout, EveryRowHasBytesOfItsOwn) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    SCOPED_TRACE(trial);
    const JobSpec spec = testing::RandomSpec(random);
    const Plan plan = *MakePlan(spec, 1 + static_cast<int>(random() % 3));
    for (int rank = 0; rank < plan.shards.workers(); ++rank) {
      const ShardLayout layout(plan, rank);
      ASSERT_EQ(layout.rows(), plan.shards.Rows(rank));
      EXPECT_EQ(layout.tokens(), spec.ordering ? layout.rows() : 0);
      std::vector<int> taken(layout.bytes());
      const auto take = [&](int64_t begin, int64_t bytes) {
        ASSERT_GE(begin, 0);
        ASSERT_LE(begin + bytes, layout.bytes());
        for (int64_t i = begin; i < begin + bytes; ++i) ++taken[i];
      };
      int64_t net = layout.tokens() * 8;
      for (const TensorKind tensor : kTensors) {
        const int64_t row_bytes = RowBytes(spec, tensor);
        net += layout.rows() * row_bytes;
        // Vector loads require an aligned start of each tensor.
        EXPECT_EQ(layout.Offset(tensor, 0) % 64, 0);
        for (int64_t row = 0; row < layout.rows(); ++row) {
          take(layout.Offset(tensor, row), row_bytes);
        }
      }
      take(layout.token_offset(), layout.tokens() * 8);
      EXPECT_EQ(layout.token_offset() % 8, 0);
      EXPECT_EQ(layout.net_bytes(), net);
      int64_t used = 0;
      for (const int times : taken) {
        ASSERT_LE(times, 1);
        used += times;
      }
      EXPECT_EQ(used, net);
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
