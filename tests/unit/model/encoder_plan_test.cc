#include "engine/model/files/encoder_plan.h"

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

EncoderConfig PublishedSize() {
  return {.input_dim = 1536,
          .embed_dim = 768,
          .heads = 16,
          .ffn_dim = 3072,
          .layers = 12,
          .branches = {{1024, 1}, {5792, 2}, {32768, 4}, {185363, 8}, {1048576, 16}},
          .norm_eps = 1e-6,
          .class_token = true,
          .output_norm = true,
          .position = GridPositions{.tile_size = 256, .grid = 1000}};
}

TEST(RowBlocks, TileTheRowsEvenlyOverTheThreads) {
  for (const int64_t rows : {1, 2, 15, 16, 17, 100, 255, 256, 257, 511, 513, 10001, 45681}) {
    for (const int threads : {1, 2, 3, 16, 64}) {
      const RowBlocks blocks(rows, threads);
      int64_t next = 0;
      for (int64_t i = 0; i < blocks.count(); ++i) {
        EXPECT_EQ(blocks.Begin(i), next);
        EXPECT_GE(blocks.Rows(i), 1);
        next += blocks.Rows(i);
      }
      EXPECT_EQ(next, rows);
      EXPECT_LE(blocks.block, 256);
      // No thread has two blocks more than another.
      EXPECT_LE(blocks.block, rows / threads + 16) << rows << " over " << threads;
    }
  }
  EXPECT_EQ(RowBlocks(0, 4).count(), 0);
}

TEST(EncoderPlan, FlopsOfAllRanksAreThoseOfOne) {
  const EncoderConfig config = PublishedSize();
  const auto one = MakeEncoderPlan(config, DataType::kFloat32, {1000, 20}, 1);
  const auto three = MakeEncoderPlan(config, DataType::kFloat32, {1000, 20}, 3);
  ASSERT_TRUE(one.ok() && three.ok());
  double sum = 0;
  for (int rank = 0; rank < 3; ++rank) sum += ProductFlops(*three, rank);
  EXPECT_DOUBLE_EQ(sum, ProductFlops(*one, 0));
  // 1,022 rows through twelve layers of 4 x 768^2 + 2 x 768 x 3,072.
  EXPECT_DOUBLE_EQ(sum, 2.0 * 1022 * (12.0 * (4 * 768 * 768 + 2 * 768 * 3072) + 768 * 1536));
}

}  // namespace
}  // namespace hilbert_ring
