#include "engine/model/files/encoder_plan.h"

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

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

}  // namespace
}  // namespace hilbert_ring
