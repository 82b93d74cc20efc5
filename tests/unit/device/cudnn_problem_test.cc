// The tasks that cuDNN takes, their problems and their pieces. Needs neither cuDNN nor a GPU.
#include "engine/device/cuda/cudnn_problem.h"

#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::cuda {
namespace {

alignas(64) uint16_t memory[1024];
float lse_memory[64];

// Every fourth row of segments of 2,048, 8 heads of dim 64: a view of a shard.
AttentionTask Dilated() {
  constexpr int64_t kRow = 8 * 64, kDilation = 4, kSegment = 2048;
  AttentionTask task;
  task.dtype = task.out_dtype = DataType::kBFloat16;
  task.batch = 5;
  task.query_rows = task.key_rows = kSegment / kDilation;
  task.head_dim = task.value_dim = 64;
  task.q = task.k = task.v = {memory, kSegment * kRow, kDilation * kRow, 64};
  task.out = {memory, kSegment * kRow, kDilation * kRow, 64};
  task.lse = {lse_memory, kSegment * 8, kDilation * 8, 1};
  return task;
}

TEST(CudnnProblem, ADilatedSegmentIsAView) {
  const AttentionTask task = Dilated();
  ASSERT_EQ(WhyNotCudnn(task), "");
  const auto calls = CudnnCalls(task, int64_t{1} << 40);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[1].batch, 4);
  EXPECT_EQ(calls[1].problem.q.dims[0], 1);
  const CudnnProblem& problem = calls[0].problem;
  const CudnnTensor rows{{4, 1, 512, 64}, {2048 * 512, 64, 4 * 512, 1}};
  EXPECT_EQ(problem.q, rows);
  EXPECT_EQ(problem.k, rows);
  EXPECT_EQ(problem.v, rows);
  EXPECT_EQ(problem.out, rows);
  EXPECT_EQ(problem.stats, (CudnnTensor{{4, 1, 512, 1}, {2048 * 8, 1, 4 * 8, 1}}));
  EXPECT_EQ(ScoresOf(problem), 4 * 512 * 512);
}

TEST(CudnnProblem, StridesOfOneAreNeverZero) {
  AttentionTask task = Dilated();
  task.batch = 1;
  task.query_rows = task.key_rows = 1;
  task.q = task.k = task.v = {task.q.data, 0, 0, 64};
  task.out = {task.out.data, 0, 0, 64};
  const auto calls = CudnnCalls(task, int64_t{1} << 40);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].problem.q, (CudnnTensor{{1, 1, 1, 64}, {64, 64, 64, 1}}));
  EXPECT_EQ(calls[0].problem.out, calls[0].problem.q);
}

TEST(CudnnProblem, SaysWhatItDoesNotTake) {
  const auto why = [](auto change) {
    AttentionTask task = Dilated();
    change(task);
    return WhyNotCudnn(task);
  };
  using testing::HasSubstr;
  EXPECT_THAT(why([](AttentionTask& t) { t.dtype = DataType::kFloat32; }), HasSubstr("16-bit"));
  EXPECT_THAT(why([](AttentionTask& t) { t.result = Result::kMerge; }), HasSubstr("merged"));
  EXPECT_THAT(why([](AttentionTask& t) { t.out_dtype = DataType::kFloat16; }), HasSubstr("type"));
  EXPECT_EQ(why([](AttentionTask& t) { t.out_scale = 1.0f / 3; }), "");
  EXPECT_THAT(why([](AttentionTask& t) { t.lse = {}; }), HasSubstr("log-sum-exp"));
  EXPECT_THAT(why([](AttentionTask& t) { t.mask = Mask::kPositions; }), HasSubstr("triangle"));
  EXPECT_THAT(why([](AttentionTask& t) {
                t.mask = Mask::kDiagonal;
                t.diagonal_shift = 3;
              }),
              HasSubstr("shifted by 3"));
  EXPECT_EQ(why([](AttentionTask& t) { t.mask = Mask::kDiagonal; }), "");
  EXPECT_THAT(why([](AttentionTask& t) {
                t.mask = Mask::kDiagonal;
                t.right = 1;
              }),
              HasSubstr("after their own"));
  EXPECT_THAT(why([](AttentionTask& t) { t.change.softcap = 30; }), HasSubstr("change"));
  EXPECT_THAT(why([](AttentionTask& t) { t.key_rows = 0; }), HasSubstr("empty"));
  EXPECT_THAT(why([](AttentionTask& t) { t.scale = -3e38f; }), HasSubstr("end of float32"));
  EXPECT_THAT(why([](AttentionTask& t) { t.scale = 1e-40f; }), HasSubstr("end of float32"));
  EXPECT_EQ(why([](AttentionTask& t) { t.scale = 0; }), "");
  EXPECT_THAT(why([](AttentionTask& t) { t.v.row_stride += 4; }), HasSubstr("16 bytes"));
  EXPECT_THAT(why([](AttentionTask& t) { t.q.data = memory + 1; }), HasSubstr("16 bytes"));
  EXPECT_THAT(why([](AttentionTask& t) { t.k.row_stride = int64_t{1} << 25; }), HasSubstr("2^31"));
}

// Expects each (batch, row) once, and no part past the limits.
void ExpectCovers(const AttentionTask& task, int64_t most_scores) {
  const auto calls = CudnnCalls(task, most_scores);
  ASSERT_FALSE(calls.empty());
  std::vector<int> seen(task.batch * task.query_rows);
  for (const CudnnCall& call : calls) {
    EXPECT_LE(ScoresOf(call.problem), std::max(most_scores, task.heads * task.key_rows));
    for (int64_t b = 0; b < call.problem.q.dims[0]; ++b) {
      for (int64_t i = 0; i < call.problem.q.dims[2]; ++i) {
        ++seen[(call.batch + b) * task.query_rows + call.row + i];
      }
    }
  }
  EXPECT_THAT(seen, testing::Each(1));
}

TEST(CudnnProblem, LongTasksAreCut) {
  AttentionTask task = Dilated();
  for (const int64_t most : {int64_t{1}, int64_t{512} * 100, int64_t{512} * 512 * 2}) {
    ExpectCovers(task, most);
  }
  EXPECT_EQ(CudnnCalls(task, int64_t{512} * 512 * 2).size(), 3u);
}

TEST(CudnnProblem, AllLengthsOfAJobShareFewGraphs) {
  AttentionTask task = Dilated();
  std::set<CudnnProblem> problems;
  for (task.batch = 1; task.batch <= 300; ++task.batch) {
    if (task.batch % 100 == 99) ExpectCovers(task, int64_t{512} * 512 * 200);
    for (const CudnnCall& call : CudnnCalls(task, int64_t{512} * 512 * 200)) {
      problems.insert(call.problem);
    }
  }
  EXPECT_EQ(problems.size(), 8u) << "1, 2, 4, ... 128 segments";
}

TEST(CudnnProblem, BatchesPast32BitOffsetsAreCut) {
  AttentionTask task = Dilated();
  task.batch = 5000;  // 5.2e9 elements from first to last
  const auto calls = CudnnCalls(task, int64_t{1} << 50);
  EXPECT_GT(calls.size(), 2u);
  ExpectCovers(task, int64_t{1} << 50);
  for (const CudnnCall& call : calls) {
    EXPECT_LE(call.problem.q.dims[0] * call.problem.q.strides[0], int64_t{1} << 31);
  }
}

// cuDNN takes no window with more rows than keys, and holds its length in float32.
TEST(CudnnProblem, AWindowOfTheTriangle) {
  AttentionTask task = Dilated();
  task.left = 99;
  EXPECT_EQ(CudnnCalls(task, int64_t{1} << 40)[0].problem.left, kUnbounded) << "without a mask";
  task.mask = Mask::kDiagonal;
  ASSERT_EQ(WhyNotCudnn(task), "");
  const CudnnProblem problem = CudnnCalls(task, int64_t{1} << 40)[0].problem;
  EXPECT_EQ(problem.left, 99);
  EXPECT_EQ(ScoresOf(problem), 4 * (100 * 101 / 2 + 412 * 100));
  task.left = 1 << 25;
  EXPECT_NE(WhyNotCudnn(task), "");
  task.left = 99;
  task.key_rows -= 1;
  EXPECT_NE(WhyNotCudnn(task), "");
}

TEST(CudnnProblem, TrianglesAreNotCutByRows) {
  AttentionTask task = Dilated();
  task.mask = Mask::kDiagonal;
  EXPECT_TRUE(CudnnCalls(task, 512 * 100).empty());
  ExpectCovers(task, 512 * 512);
  EXPECT_EQ(ScoresOf(CudnnCalls(task, 512 * 512)[0].problem), 512 * 513 / 2);
}

}  // namespace
}  // namespace hilbert_ring::cuda
