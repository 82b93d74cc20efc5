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

// Few blocks, so that a product has work for all of a GPU, of a size that is bounded.
TEST(RowBlocks, AGpuTakesLargeOnes) {
  for (const int64_t rows : {1, 100, 8192, 8193, 10001, 45681, 1000001}) {
    const RowBlocks blocks(rows, 0);
    EXPECT_EQ(blocks.count(), (rows + 8191) / 8192) << rows;
    EXPECT_LE(blocks.block, 8192);
    EXPECT_LE(blocks.block, rows / blocks.count() + 16);
  }
}

// A GPU has one block, and what its products need.
TEST(EncoderMemory, OfAGpuIsBoundedToo) {
  EncoderConfig config = PublishedSize();
  const auto bytes = [&](int64_t tiles, DataType products) {
    const auto plan = MakeEncoderPlan(config, DataType::kBFloat16, {tiles}, 1);
    return MemoryOf(*plan, 0, 0, products, {}).block_bytes;
  };
  EXPECT_EQ(bytes(8191, DataType::kBFloat16),
            8192 * (3072 * 4 + 3072 * 2 + 8 + 16) + (32 << 20) + 192 * 8 + 768 * 8);
  EXPECT_EQ(bytes(8191, DataType::kFloat32) - bytes(8191, DataType::kBFloat16), 8192 * 3072 * 2);
  EXPECT_LE(bytes(1'000'000, DataType::kFloat32), bytes(8191, DataType::kFloat32));
  // q, k and v are the results of one product.
  config.ffn_dim = 768;
  config.position.reset();
  EXPECT_EQ(bytes(8191, DataType::kBFloat16),
            8192 * (3 * 768 * 4 + 1536 * 2 + 8) + (32 << 20) + 768 * 8);
}

TEST(EncoderMemory, FallsWithTheRanksAndHoldsNoFeedForwardOfAllRows) {
  const EncoderConfig config = PublishedSize();
  const std::vector<int64_t> slide = {45680};
  int64_t before = 0;
  for (const int ranks : {1, 2, 4, 8}) {
    const auto plan = MakeEncoderPlan(config, DataType::kFloat32, slide, ranks);
    ASSERT_TRUE(plan.ok()) << plan.status();
    int64_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const EncoderMemory memory = MemoryOf(*plan, rank, 2, DataType::kFloat32, {});
      most = std::max(most, memory.total());
      EXPECT_LT(memory.block_bytes, 16 << 20);
      EXPECT_EQ(memory.residual_bytes, plan->attention.shards.Rows(rank) * 768 * 4);
    }
    if (before > 0) {
      EXPECT_LT(most, before * 0.7) << ranks;
    }
    before = most;
  }
}

// Of many small slides the sums are no trifle: one for each slide.
TEST(EncoderMemory, CountsSumsMapsAndWidenedOperands) {
  const EncoderConfig config = PublishedSize();
  const std::vector<int64_t> slides(1000, 3);
  const EncoderPlan plan = MakeEncoderPlan(config, DataType::kBFloat16, slides, 2).value();
  const auto memory = [&](DataType products, const EncoderOutputs& outputs) {
    return MemoryOf(plan, 0, 2, products, outputs);
  };
  const EncoderOutputs rows{.states = {12}}, pooled{.states = {12}, .pooling = Pooling::kMean};
  EXPECT_EQ(memory(DataType::kBFloat16, rows).output_bytes, 0);
  const SlideRange of_rank = SlidesOf(plan, 0);
  EXPECT_EQ(of_rank.begin, 0);
  EXPECT_GE(of_rank.end, 490);
  EXPECT_LE(of_rank.end, 510);
  // Those that are summed, and of each state those that wait for the end.
  EXPECT_EQ(memory(DataType::kBFloat16, pooled).output_bytes,
            (2 * of_rank.end + 64) * 768 * 8 + 2 * of_rank.end * 8);
  EncoderOutputs all = pooled;
  all.states = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  EXPECT_EQ(memory(DataType::kBFloat16, all).output_bytes,
            (14 * of_rank.end + 64) * 768 * 8 + 14 * of_rank.end * 8);
  const EncoderOutputs mapped{.states = {12},
                              .attention_map = AttentionMapOutput{.columns = MapColumns::kHeads}};
  EXPECT_EQ(memory(DataType::kBFloat16, mapped).output_bytes, 2 * 256 * 16 * 4);
  // Operands are as wide as the feed-forward part: 2 bytes more for each number of a block.
  EXPECT_EQ(
      memory(DataType::kFloat32, rows).block_bytes - memory(DataType::kBFloat16, rows).block_bytes,
      2 * 256 * 3072 * 2);
}

// The second rank needs the class token's row, which the first copies to send it.
TEST(EncoderMemory, CountsClassTokensThatTravelForAMap) {
  const EncoderConfig config = PublishedSize();
  const EncoderPlan plan = MakeEncoderPlan(config, DataType::kBFloat16, {1000}, 3).value();
  const EncoderOutputs plain{.states = {12}};
  EncoderOutputs mapped = plain;
  mapped.attention_map = AttentionMapOutput{.columns = MapColumns::kHeads};
  for (int rank = 0; rank < 3; ++rank) {
    const auto bytes = [&](const EncoderOutputs& outputs) {
      return MemoryOf(plan, rank, 1, DataType::kBFloat16, outputs).output_bytes;
    };
    const int64_t block = RowBlocks(plan.attention.shards.Rows(rank), 1).block;
    EXPECT_EQ(bytes(mapped) - bytes(plain), block * 16 * 4 + (768 * 2 + 16 * 4)) << rank;
  }
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
