#include "engine/device/cpu/thread_pool.h"

#include <atomic>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

TEST(ThreadPool, WorksEveryPieceOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t pieces : {0, 1, 2, 7, 1000}) {
      for (int64_t chunk : {0, 1, 3, 5000}) {
        std::vector<std::atomic<int>> worked(pieces);
        pool.Run(pieces, chunk, [&](int thread, int64_t begin, int64_t end) {
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          EXPECT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++worked[i];
          return true;
        });
        EXPECT_THAT(worked, testing::Each(testing::Eq(1)));
      }
    }
  }
}

TEST(ThreadPool, StopsClaiming) {
  ThreadPool pool(3);
  std::atomic<int64_t> worked = 0;
  pool.Run(1'000'000, 1, [&](int, int64_t, int64_t) { return ++worked < 100; });
  EXPECT_GE(worked, 100);
  EXPECT_LT(worked, 1'000'000);
  worked = 0;
  pool.Run(50, 1, [&](int, int64_t, int64_t) { return ++worked > 0; });
  EXPECT_EQ(worked, 50);
}

TEST(ThreadPool, EndsWithoutHavingRun) { ThreadPool pool(4); }

}  // namespace
}  // namespace hilbert_ring
