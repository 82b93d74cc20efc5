// Launches are short, and cover every tile of every task once with all of its keys.
#include "engine/device/cuda/launch_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::Not;
using ::testing::SizeIs;

AttentionTask Task(int64_t rows, int64_t keys, DataType dtype = DataType::kBFloat16) {
  AttentionTask task;
  task.dtype = dtype;
  task.query_rows = rows;
  task.key_rows = keys;
  task.head_dim = task.value_dim = 64;
  return task;
}

LaunchRates Rates(MatrixUnits units = MatrixUnits::kWarp) {
  return {.multiprocessors = 4,
          .matrix_units = units,
          .tensor_flops = units == MatrixUnits::kWarpgroup ? 8e9 : 4e9,
          .plain_flops = 2e9,
          .launch_seconds = 0.02};
}

std::vector<PlannedLaunch> Launches(const std::vector<AttentionTask>& tasks,
                                    const LaunchRates& rates, std::vector<float>& scratch) {
  scratch.resize(ScratchFloats(tasks, rates));
  LaunchPlanner planner(tasks, rates, scratch.data());
  std::vector<PlannedLaunch> launches;
  PlannedLaunch launch;
  while (planner.Next(launch)) launches.push_back(launch);
  return launches;
}

// Views that a tensor map can describe: 16-byte rows, and a batch stride of whole rows.
AttentionTask MappedTask() {
  AttentionTask task = Task(1000, 1000);
  task.batch = 3;
  for (ConstView* view : {&task.k, &task.v}) {
    *view = {.data = reinterpret_cast<const void*>(uintptr_t{4096}),
             .batch_stride = 2000 * 128,
             .row_stride = 2 * 128};
  }
  return task;
}

// Tiles are full, and hold the task's dims.
TEST(ChooseNative, ByTypeDimsAndRows) {
  struct Choice {
    int64_t rows, head_dim, value_dim;
    MatrixUnits units;
    NativeKernel kernel;
    DataType dtype = DataType::kBFloat16;
  };
  for (const Choice& choice :
       {Choice{1000, 64, 64, MatrixUnits::kNone, NativeKernel::kPlain64},
        Choice{1000, 64, 64, MatrixUnits::kWarp, NativeKernel::kTensor64},
        Choice{1000, 64, 72, MatrixUnits::kWarp, NativeKernel::kTensor128},
        Choice{1000, 136, 72, MatrixUnits::kWarp, NativeKernel::kTensor256},
        Choice{64, 64, 64, MatrixUnits::kWarp, NativeKernel::kTensor64Short},
        Choice{1000, 136, 72, MatrixUnits::kWarp, NativeKernel::kPlain128, DataType::kFloat32},
        Choice{1000, 64, 256, MatrixUnits::kWarp, NativeKernel::kPlain256, DataType::kFloat32},
        Choice{1000, 64, 64, MatrixUnits::kWarpgroup, NativeKernel::kWarpgroup64},
        Choice{128, 64, 64, MatrixUnits::kWarpgroup, NativeKernel::kTensor64},
        Choice{128, 128, 64, MatrixUnits::kWarpgroup, NativeKernel::kWarpgroup128},
        Choice{1000, 64, 136, MatrixUnits::kWarpgroup, NativeKernel::kTensor256},
        Choice{1000, 64, 64, MatrixUnits::kPipelined, NativeKernel::kPipelined64},
        Choice{1000, 64, 128, MatrixUnits::kPipelined, NativeKernel::kPipelined128}}) {
    AttentionTask task = MappedTask();
    task.dtype = choice.dtype;
    task.query_rows = choice.rows;
    task.head_dim = choice.head_dim;
    task.value_dim = choice.value_dim;
    EXPECT_EQ(ChooseNative(task, choice.units), choice.kernel)
        << choice.rows << " " << choice.head_dim << " " << choice.value_dim;
  }
}

TEST(ChooseNative, NoTensorMapsOfOtherViews) {
  const auto differs = [](const std::function<void(AttentionTask&)>& change) {
    AttentionTask task = MappedTask();
    change(task);
    return !HasTensorMaps(task) &&
           ChooseNative(task, MatrixUnits::kPipelined) == NativeKernel::kWarpgroup64;
  };
  ASSERT_TRUE(HasTensorMaps(MappedTask()));
  EXPECT_TRUE(differs(
      [](AttentionTask& task) { task.v.data = static_cast<const char*>(task.v.data) + 8; }));
  EXPECT_TRUE(differs([](AttentionTask& task) { task.k.row_stride += 4; }));
  EXPECT_TRUE(differs([](AttentionTask& task) { task.k.row_stride = 56; }));  // rows overlap
  EXPECT_TRUE(differs([](AttentionTask& task) { task.k.row_stride = -256; }));
  EXPECT_TRUE(differs([](AttentionTask& task) { task.v.row_stride = int64_t{1} << 39; }));
  EXPECT_TRUE(differs([](AttentionTask& task) { task.k.batch_stride += 128; }));
  EXPECT_TRUE(differs([](AttentionTask& task) { task.v.batch_stride = 0; }));
  AttentionTask one = MappedTask();
  one.batch = 1;
  one.k.batch_stride = one.v.batch_stride = 0;
  EXPECT_TRUE(HasTensorMaps(one));
}

// The pipelined kernel alone takes a softcap on Hopper; slopes take the portable one.
TEST(ChooseNative, ByTheChangeOfScores) {
  AttentionTask task = MappedTask();
  task.change.softcap = 30;
  EXPECT_EQ(ChooseNative(task, MatrixUnits::kPipelined), NativeKernel::kPipelined64);
  EXPECT_EQ(ChooseNative(task, MatrixUnits::kWarpgroup), NativeKernel::kTensor64);
  const float slope = 1;
  task.change.slopes = &slope;
  EXPECT_EQ(ChooseNative(task, MatrixUnits::kPipelined), NativeKernel::kTensor64);
}

TEST(LaunchPlan, LaunchesChangeAllScoresOrNone) {
  std::vector<float> scratch;
  std::vector<AttentionTask> tasks(6, Task(16, 16));
  for (size_t i = 0; i < tasks.size(); i += 2) tasks[i].change.softcap = 30;
  const auto launches = Launches(tasks, Rates(), scratch);
  ASSERT_EQ(launches.size(), 2u);
  for (const PlannedLaunch& launch : launches) {
    EXPECT_EQ(launch.works.size(), 3u);
    for (const AttentionWork& work : launch.works) {
      EXPECT_EQ(work.change.softcap, launch.changes ? 30 : 0);
    }
  }
}

// A launch's time is that of the keys in the window. Keys are not cut although there are many.
TEST(LaunchPlan, KeysOutsideOfAWindowCostNothing) {
  AttentionTask task = Task(1'000'000, 1'000'000);
  task.mask = Mask::kDiagonal;
  LaunchRates rates = Rates();
  rates.tensor_flops = 1e12;
  std::vector<float> scratch;
  EXPECT_GT(Launches({task}, rates, scratch).size(), 5000u);
  EXPECT_FALSE(scratch.empty());
  task.left = 1000;
  EXPECT_LT(Launches({task}, rates, scratch).size(), 20u);
  EXPECT_TRUE(scratch.empty());
}

TEST(LaunchPlan, TasksOfOneKernelShareLaunches) {
  std::vector<float> scratch;
  const std::vector<AttentionTask> tasks(100, Task(16, 16));
  const auto launches = Launches(tasks, Rates(), scratch);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].works.size(), 100u);
  EXPECT_EQ(launches[0].tiles, 100);
  EXPECT_EQ(launches[0].works[7].first_tile, 7);
  EXPECT_TRUE(scratch.empty());
}

TEST(LaunchPlan, AlignmentIsOfEveryRow) {
  alignas(64) static uint16_t data[64];
  std::vector<float> scratch;
  AttentionTask task = Task(4, 4);
  task.q = {data, 0, 64, 64};
  task.k = {data, 0, 64, 0};
  task.v = {data, 0, 64, 0};
  task.out_dtype = DataType::kBFloat16;
  task.out = {data, 0, 64, 64};
  const auto work = [&] { return Launches({task}, Rates(), scratch).at(0).works.at(0); };
  EXPECT_EQ(work().queries_aligned, 1);
  EXPECT_EQ(work().keys_aligned, 1);
  EXPECT_EQ(work().out_aligned, 1);
  task.v.row_stride = 68;
  EXPECT_EQ(work().keys_aligned, 0);
  task.q.data = data + 4;
  EXPECT_EQ(work().queries_aligned, 0);
  task.out.head_stride = 65;
  EXPECT_EQ(work().out_aligned, 0);
}

struct KeyRange {
  int64_t begin = 0, end = 0;
};

// The keys that a task's tile sees.
KeyRange SeenBy(const AttentionTask& task, int lanes_of_tile, int64_t number) {
  if (task.mask != Mask::kDiagonal) return {0, task.key_rows};
  const int64_t lanes = task.query_rows * task.heads;
  const int64_t of_batch = (lanes + lanes_of_tile - 1) / lanes_of_tile;
  const int64_t first_lane = (of_batch - 1 - number % of_batch) * lanes_of_tile;
  const int64_t last_lane = std::min(lanes, first_lane + lanes_of_tile) - 1;
  const int64_t begin =
      task.left == kUnbounded ? 0 : first_lane / task.heads + task.diagonal_shift - task.left;
  const int64_t end = last_lane / task.heads + task.diagonal_shift + 1;
  return {std::max(begin, int64_t{0}), std::min(end, task.key_rows)};
}

// Walks the launches like the kernels.
TEST(LaunchPlan, EveryTileHasTheKeysThatItSeesOnceInOrder) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<AttentionTask> tasks;
    std::vector<std::vector<float>> lses(1 + random() % 5);
    for (auto& lse : lses) {
      AttentionTask task =
          Task(random() % 3000, random() % 60'000, static_cast<DataType>(random() % 3));
      task.batch = 1 + random() % 3;
      task.heads = 1 + random() % 3;
      task.mask = static_cast<Mask>(random() % 3);
      task.diagonal_shift = static_cast<int64_t>(random() % 8000) - 4000;
      if (random() % 2 == 0) task.left = static_cast<int64_t>(random() % 6000);
      task.result = random() % 2 == 0 ? Result::kMerge : Result::kWrite;
      const int64_t rows = task.batch * task.query_rows * task.heads + 1;
      lse.resize(2 * rows);
      if (task.result == Result::kWrite) {
        task.lse = {lse.data(), task.query_rows * task.heads, task.heads, 1};
      } else {
        task.state = {lse.data(), lse.data() + rows, task.query_rows * task.heads, task.heads, 1};
      }
      tasks.push_back(task);
    }
    const LaunchRates rates = Rates(static_cast<MatrixUnits>(trial % 3));
    std::vector<float> scratch;
    const auto launches = Launches(tasks, rates, scratch);
    std::map<std::pair<size_t, int64_t>, KeyRange> done;  // by (task, tile)
    for (const PlannedLaunch& launch : launches) {
      const KernelTile tile = TileOf(launch.kernel);
      int64_t tiles = 0;
      double flops = 0;
      for (const AttentionWork& work : launch.works) {
        const bool interleaved = launch.works.back().first_tile == 0;
        ASSERT_EQ(work.first_tile, interleaved ? 0 : tiles);
        if (interleaved) {
          ASSERT_EQ(work.tiles, launch.works[0].tiles);
        }
        tiles += work.tiles;
        // Lanes and keys alone distinguish these tasks.
        const size_t index = std::find_if(tasks.begin(), tasks.end(),
                                          [&](const AttentionTask& task) {
                                            return work.lanes == task.query_rows * task.heads &&
                                                   work.heads == task.heads &&
                                                   work.dtype == static_cast<int>(task.dtype) &&
                                                   work.key_end <= task.key_rows &&
                                                   work.mask == static_cast<int>(task.mask);
                                          }) -
                             tasks.begin();
        ASSERT_LT(index, tasks.size());
        const AttentionTask& task = tasks[index];
        if (task.result == Result::kMerge || work.lse.data != nullptr) {  // the last work
          ASSERT_EQ(work.lse.data, task.lse.data);
          ASSERT_EQ(work.state.max, task.state.max);
          ASSERT_EQ(work.state.sum, task.state.sum);
        } else {  // dense rows of the wave, all within the scratch memory
          for (const int64_t index_of_tile : {int64_t{0}, work.tiles - 1}) {
            int64_t of_batch = (work.task_tile + index_of_tile) % work.tiles_per_batch;
            if (task.mask == Mask::kDiagonal) of_batch = work.tiles_per_batch - 1 - of_batch;
            const int64_t lane = of_batch * tile.lanes;
            const auto* out = static_cast<const float*>(work.out.data) + lane * 64;
            ASSERT_EQ(work.lse.data, nullptr);
            ASSERT_EQ(work.state.row, task.heads);
            ASSERT_EQ(work.state.head, 1);
            ASSERT_GE(out, scratch.data());
            ASSERT_LE(out + int64_t{tile.lanes} * 64, work.state.max + lane);
            ASSERT_LE(work.state.max + lane + tile.lanes, work.state.sum + lane);
            ASSERT_LE(work.state.sum + lane + tile.lanes, scratch.data() + scratch.size());
          }
        }
        for (int64_t t = 0; t < work.tiles; ++t) {
          const auto [at, is_first] =
              done.insert({{index, work.task_tile + t}, {work.key_begin, work.key_begin}});
          KeyRange& keys = at->second;
          const bool merges = task.result == Result::kMerge || !is_first;
          ASSERT_EQ(work.prior_state.max != nullptr, merges);
          ASSERT_EQ(work.prior_state.sum != nullptr, merges);
          ASSERT_EQ(keys.end, work.key_begin);
          keys.end = work.key_end;
          const KeyRange seen = SeenBy(task, tile.lanes, work.task_tile + t);
          flops += 2.0 * tile.lanes * (64 + tile.value_dim) *
                   static_cast<double>(std::max<int64_t>(
                       0, std::min(seen.end, work.key_end) - std::max(seen.begin, work.key_begin)));
        }
      }
      ASSERT_EQ(launch.tiles, tiles);
      const double rate = tile.units == MatrixUnits::kNone ? rates.plain_flops : rates.tensor_flops;
      EXPECT_LE(flops,
                std::max(rate * rates.launch_seconds * 1.001, 2.0 * tile.lanes * 128 * tile.keys));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      const KernelTile tile = TileOf(ChooseNative(tasks[i], rates.matrix_units));
      const AttentionTask& task = tasks[i];
      const int64_t lanes = task.query_rows * task.heads;
      const int64_t of_batch = (lanes + tile.lanes - 1) / tile.lanes;
      for (int64_t t = 0; t < task.batch * of_batch; ++t) {
        ASSERT_TRUE(done.contains({i, t}));
        const KeyRange seen = SeenBy(task, tile.lanes, t);
        if (seen.begin >= seen.end) continue;
        ASSERT_LE((done[{i, t}].begin), seen.begin);
        ASSERT_GE((done[{i, t}].end), seen.end);
      }
    }
  }
}

// Blocks of threads then end with short tiles. Other triangles leave no launch half empty.
TEST(LaunchPlan, InterleavesTrianglesOfTheSameShape) {
  AttentionTask triangle = Task(20'000, 20'000);
  triangle.mask = Mask::kDiagonal;
  std::vector<float> scratch;
  const auto works_of = [&](const std::vector<AttentionTask>& tasks, double tensor_flops) {
    LaunchRates rates = Rates();
    rates.tensor_flops = tensor_flops;
    std::vector<std::vector<int64_t>> first_tiles;
    for (const PlannedLaunch& launch : Launches(tasks, rates, scratch)) {
      std::vector<int64_t>& firsts = first_tiles.emplace_back();
      for (const AttentionWork& work : launch.works) firsts.push_back(work.first_tile);
    }
    return first_tiles;
  };
  const std::vector<int64_t> interleaved(4, 0);
  const std::vector<AttentionTask> four(4, triangle);
  EXPECT_THAT(works_of(four, 1e14), ElementsAre(interleaved));
  EXPECT_THAT(works_of(four, 5e12),
              AllOf(SizeIs(Gt(1u)), Each(interleaved)));  // in several launches
  std::vector<AttentionTask> more = four;
  more.push_back(Task(100, 100));
  EXPECT_THAT(works_of(more, 1e14), SizeIs(1)) << "a launch for all";
  EXPECT_THAT(works_of(std::vector<AttentionTask>(4, Task(20'000, 20'000)), 1e14),
              ElementsAre(Not(interleaved)))
      << "squares stay together, where their keys are";
}

// A launch took `times` longer than its rates.
TEST(LaunchPlan, ExpectedSlownessMakesLaunchesSmaller) {
  const std::vector<AttentionTask> tasks(4, Task(20'000, 64));
  std::vector<float> scratch(ScratchFloats(tasks, Rates()));
  LaunchPlanner planner(tasks, Rates(), scratch.data());
  PlannedLaunch launch;
  ASSERT_TRUE(planner.Next(launch));
  const int64_t before = launch.tiles;
  int64_t tiles = before;
  planner.ExpectSlowness(4);
  ASSERT_TRUE(planner.Next(launch));
  EXPECT_LE(launch.tiles, std::max<int64_t>(1, before / 4));
  do {
    tiles += launch.tiles;
  } while (planner.Next(launch));
  const int64_t lanes = TileOf(ChooseNative(tasks[0], Rates().matrix_units)).lanes;
  EXPECT_EQ(tiles, 4 * ((20'000 + lanes - 1) / lanes));
}

TEST(LaunchPlan, ALaunchHasAByteOfNotesForEachTile) {
  AttentionTask task = Task(8, 8);
  task.batch = 3 * kMostTiles;
  std::vector<float> scratch;
  LaunchRates rates = Rates();
  rates.plain_flops = rates.tensor_flops = 1e30;
  const auto launches = Launches({task}, rates, scratch);
  EXPECT_EQ(launches.size(), 3u);
  for (const PlannedLaunch& launch : launches) EXPECT_LE(launch.tiles, kMostTiles);
}

// 2^40 keys are cut when they are launched, not all before.
TEST(LaunchPlan, KeysOfAWorkAreCountedIn32Bits) {
  AttentionTask task = Task(64, int64_t{5} << 30);
  task.result = Result::kMerge;
  LaunchRates rates = Rates();
  rates.tensor_flops = 1e30;  // a launch has time for all keys
  std::vector<float> scratch;
  int64_t keys = 0;
  for (const PlannedLaunch& launch : Launches({task}, rates, scratch)) {
    for (const AttentionWork& work : launch.works) {
      EXPECT_LE(work.key_end - work.key_begin, int64_t{1} << 30);
      keys += (work.key_end - work.key_begin) * work.tiles;
    }
  }
  EXPECT_EQ(keys, task.key_rows);
}

}  // namespace
}  // namespace hilbert_ring::cuda
