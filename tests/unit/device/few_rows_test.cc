// Few queries over many keys: which tasks are split, and results that take several waves.
#include "engine/device/cpu/few_rows.h"

#include <random>
#include <vector>

#include "engine/device/cpu/cpu_device.h"
#include "engine/device/device.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

TEST(SplitKeys, PartsDependOnTheTaskAlone) {
  std::vector<float> rows(16);
  AttentionTask task{
      .heads = 4, .query_rows = 1, .key_rows = 1 << 20, .head_dim = 8, .value_dim = 8};
  task.k = task.v = {rows.data(), 0, 16};
  AttentionTask neighbour = task;
  neighbour.k.data = neighbour.v.data = rows.data() + 8;
  const auto alone = SplitKeys({&task, 1});
  const auto together = SplitKeys(std::vector{task, neighbour});
  ASSERT_EQ(alone.size(), 1u);
  ASSERT_EQ(together.size(), 1u);
  EXPECT_EQ(together[0].tasks(), 2);
  EXPECT_EQ(together[0].part_keys, alone[0].part_keys);
  EXPECT_GT(alone[0].parts, 100);
  EXPECT_EQ(SplitKeys(std::vector{neighbour, task}).size(), 2u) << "in the order of addresses";
}

// Batches have results of more than a wave.
TEST(SplitKeys, EveryBatchIsComputedOnce) {
  constexpr int64_t kBatches = 8'400, kKeys = 300, kDim = 8, kValueDim = 256;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(kBatches * kDim), k(kKeys * kDim), v(kKeys * kValueDim);
  for (std::vector<float>* of : {&q, &k, &v}) {
    for (float& x : *of) x = normal(random);
  }
  std::vector<float> out(kBatches * kValueDim), alone(kValueDim);
  AttentionTask task{.batch = kBatches,
                     .query_rows = 1,
                     .key_rows = kKeys,
                     .head_dim = kDim,
                     .value_dim = kValueDim,
                     .q = {q.data(), kDim, kDim},
                     .k = {k.data(), 0, kDim},
                     .v = {v.data(), 0, kValueDim},
                     .out = {out.data(), kValueDim, kValueDim}};
  auto splits = SplitKeys({&task, 1});
  ASSERT_GT(splits.size(), 1u);
  EXPECT_EQ(FirstWave({&task, 1}, splits).size(), 1u);
  auto device = MakeCpuDevice({.threads = 2});
  ASSERT_TRUE(device.ok());
  ASSERT_TRUE((*device)->Attend({&task, 1}, {}).ok());
  for (const int64_t batch : {int64_t{0}, splits[1].first_batch, kBatches - 1}) {
    AttentionTask one = task;
    one.batch = 1;
    one.q.data = q.data() + batch * kDim;
    one.out.data = alone.data();
    ASSERT_TRUE((*device)->Attend({&one, 1}, {}).ok());
    EXPECT_EQ(alone,
              std::vector(out.begin() + batch * kValueDim, out.begin() + (batch + 1) * kValueDim))
        << batch;
  }
}

}  // namespace
}  // namespace hilbert_ring
