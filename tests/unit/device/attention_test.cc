// Device::Attend against a plain float64 loop, on every kernel of the machine.
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "engine/spec/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/device/attention_case.h"
#include "tests/unit/device/devices_under_test.h"

namespace hilbert_ring {
namespace {

class AttentionTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> MakeDeviceUnderTest(int threads = 2) {
    return DeviceFor(GetParam(), threads);
  }
};

HILBERT_RING_FOR_ALL_DEVICES(AttentionTest);

void ExpectRight(Device& device, AttentionCase& c) {
  const AttentionTask task = c.Task();
  ASSERT_TRUE(device.Attend({&task, 1}, {}).ok());
  EXPECT_EQ(WhatIsWrong(c, device.info()), "") << c.shape.Describe();
}

TEST_P(AttentionTest, NamesItsKernel) {
  EXPECT_EQ(MakeDeviceUnderTest()->info().kernel, GetParam());
}

TEST_P(AttentionTest, RandomShapes) {
  auto device = MakeDeviceUnderTest();
  for (int seed = 0;
       seed < (kEmulated ? AtDepth(20, 20, 250) : AtDepth(40, 60, 250)) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    AttentionCase c(RandomShape(random), random);
    SCOPED_TRACE(seed);
    ExpectRight(*device, c);
  }
}

// Several tiles of queries and of keys, the last of each partial, for each kernel.
TEST_P(AttentionTest, ManyRowsAndKeys) {
  auto device = MakeDeviceUnderTest();
  for (int seed = 0; seed < Rounds(36) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    CaseShape shape = RandomShape(random);
    shape.dtype = seed % 2 == 0 ? DataType::kBFloat16 : DataType::kFloat16;
    shape.batch = 1 + seed % 5 / 4;
    shape.heads = 1 + static_cast<int64_t>(random() % 2);
    shape.query_rows = 129 + static_cast<int64_t>(random() % 150);
    shape.key_rows = 65 + static_cast<int64_t>(random() % 500);
    shape.head_dim = 8 + 8 * static_cast<int64_t>(random() % (seed % 4 < 2 ? 8 : 16));
    shape.value_dim = 8 + 8 * static_cast<int64_t>(random() % (seed % 4 < 2 ? 8 : 16));
    shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    shape.diagonal_shift = static_cast<int64_t>(random() % 300) - 150;
    AttentionCase c(shape, random);
    SCOPED_TRACE(seed);
    ExpectRight(*device, c);
  }
}

TEST_P(AttentionTest, EveryDim) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(1);
  const int64_t step = kEmulated ? AtDepth(24, 24, 8) : 8;
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (int64_t dim = 8; dim <= 256; dim += step) {
      AttentionCase c({.dtype = dtype,
                       .heads = 2,
                       .query_rows = 13,
                       .key_rows = 71,
                       .head_dim = dim,
                       .value_dim = 264 - dim,
                       .scale = 1 / std::sqrt(static_cast<float>(dim))},
                      random);
      ExpectRight(*device, c);
    }
  }
}

TEST_P(AttentionTest, ManyTasksInOneCall) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(2);
  std::vector<std::unique_ptr<AttentionCase>> cases;
  std::vector<AttentionTask> tasks;
  for (int i = 0; i < Rounds(60); ++i) {
    CaseShape shape = RandomShape(random);
    shape.query_rows = std::min<int64_t>(shape.query_rows, 16);  // some have no rows at all
    cases.push_back(std::make_unique<AttentionCase>(shape, random));
    tasks.push_back(cases.back()->Task());
  }
  ASSERT_TRUE(device->Attend(tasks, {}).ok());
  for (auto& c : cases) EXPECT_EQ(WhatIsWrong(*c, device->info()), "") << c->shape.Describe();
}

TEST_P(AttentionTest, TinySegments) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(3);
  for (Mask mask : {Mask::kNone, Mask::kDiagonal}) {
    AttentionCase c({.mask = mask,
                     .batch = Rounds(1500),
                     .query_rows = 8,
                     .key_rows = 8,
                     .head_dim = 16,
                     .value_dim = 16,
                     .scale = 0.25f},
                    random);
    ExpectRight(*device, c);
  }
}

// Batches of a pack differ in rows, heads, mask and result. Kinds of scores are packed apart.
TEST_P(AttentionTest, ShortBatchesOfManyTasks) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(4);
  for (int kind = 0; kind < Rounds(12); ++kind) {
    std::vector<std::unique_ptr<AttentionCase>> cases;
    std::vector<AttentionTask> tasks;
    CaseShape shape = RandomShape(random);
    for (int i = 0; i < 24; ++i) {
      if (i == 12) shape = RandomShape(random);
      shape.result = random() % 2 == 0 ? Result::kWrite : Result::kMerge;
      shape.out_dtype = DataType::kFloat32;
      shape.mask = random() % 2 == 0 ? Mask::kNone : Mask::kDiagonal;
      shape.diagonal_shift = static_cast<int64_t>(random() % 5) - 2;
      shape.left = random() % 2 == 0 ? kUnbounded : static_cast<int64_t>(random() % 3);
      shape.batch = 1 + static_cast<int64_t>(random() % 3 * (random() % 12));
      shape.heads = 1 + static_cast<int64_t>(random() % 3);
      shape.query_rows = 1 + static_cast<int64_t>(random() % 5);
      shape.key_rows = 1 + static_cast<int64_t>(random() % 16);
      cases.push_back(std::make_unique<AttentionCase>(shape, random));
      tasks.push_back(cases.back()->Task());
    }
    ASSERT_TRUE(device->Attend(tasks, {}).ok());
    for (auto& c : cases) EXPECT_EQ(WhatIsWrong(*c, device->info()), "") << c->shape.Describe();
  }
}

// A GPU's launches cut this number of keys: parts of 16-bit tasks merge in float32.
TEST_P(AttentionTest, ManyKeys) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(9);
  int number = 0;
  for (const auto& [dtype, dim] :
       {std::pair{DataType::kFloat32, 40}, {DataType::kBFloat16, 40}, {DataType::kBFloat16, 104}}) {
    for (Mask mask : {Mask::kNone, Mask::kDiagonal, Mask::kPositions}) {
      for (Result result : {Result::kWrite, Result::kMerge}) {
        if (number++ % AtDepth(5, 5, 1) != 0) continue;
        AttentionCase c({.dtype = dtype,
                         .out_dtype = result == Result::kWrite ? dtype : DataType::kFloat32,
                         .result = result,
                         .mask = mask,
                         .diagonal_shift = 2200,
                         .heads = 2,
                         .query_rows = 70,
                         .key_rows = 2400,
                         .head_dim = dim,
                         .value_dim = dim - 16,
                         .scale = 0.2f,
                         .gap_unit = 8},
                        random);
        ExpectRight(*device, c);
      }
    }
  }
}

// Their keys are split, and vectors run over dims: the last is partial.
TEST_P(AttentionTest, FewRowsOverManyKeys) {
  auto device = MakeDeviceUnderTest();
  for (int seed = 0; seed < Rounds(80) && !HasFailure(); ++seed) {
    std::mt19937_64 random(4000 + seed);
    CaseShape shape = RandomShape(random);
    shape.query_rows = 1 + static_cast<int64_t>(random() % 6);
    shape.key_rows = 256 + static_cast<int64_t>(random() % (seed % 4 == 0 ? 3000 : 700));
    if (shape.mask == Mask::kDiagonal && random() % 2 == 0) {
      shape.diagonal_shift = shape.key_rows - shape.query_rows;
    }
    AttentionCase c(shape, random);
    SCOPED_TRACE(seed);
    ExpectRight(*device, c);
  }
}

// Tasks of neighbouring kv heads read the same rows, and have the bits that each has alone.
TEST_P(AttentionTest, NeighboursAreAsAlone) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(11);
  constexpr int64_t kTasks = 5;
  for (const auto& [dtype, lanes, dim] : {std::tuple{DataType::kBFloat16, 1, 72},
                                          {DataType::kFloat16, 3, 40},
                                          {DataType::kFloat32, 6, 64},
                                          {DataType::kBFloat16, 16, 128}}) {
    constexpr int64_t kKeys = 1100;
    const int64_t element = ElementBytes(dtype), row = kTasks * dim;
    const auto normal = [&, dtype = dtype](int64_t count) {
      std::vector<std::byte> made(static_cast<size_t>(count * element));
      std::normal_distribution<float> number;
      for (int64_t i = 0; i < count; ++i) StoreElement(dtype, made.data(), i, number(random));
      return made;
    };
    const std::vector<std::byte> q = normal(lanes * row), k = normal(kKeys * row),
                                 v = normal(kKeys * row);
    std::vector<float> together(static_cast<size_t>(lanes * row)), alone(together);
    std::vector<AttentionTask> tasks;
    for (int64_t t = 0; t < kTasks; ++t) {
      tasks.push_back({.dtype = dtype,
                       .query_rows = lanes,
                       .key_rows = kKeys,
                       .head_dim = dim,
                       .value_dim = dim,
                       .q = {q.data() + t * dim * element, 0, row},
                       .k = {k.data() + t * dim * element, 0, row},
                       .v = {v.data() + t * dim * element, 0, row},
                       .out = {together.data() + t * dim, 0, row},
                       .scale = 0.3f,
                       .mask = Mask::kDiagonal,
                       .diagonal_shift = kKeys - lanes,
                       .left = 700});
    }
    ASSERT_TRUE(device->Attend(tasks, {}).ok());
    for (AttentionTask task : tasks) {
      task.out.data = alone.data() + (static_cast<float*>(task.out.data) - together.data());
      ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
    }
    EXPECT_EQ(together, alone) << lanes;
  }
}

// Sums of equal terms round the same way every time, so their errors add up.
TEST_P(AttentionTest, AMillionEqualKeys) {
  auto device = MakeDeviceUnderTest();
  const int64_t keys = 1'000'000;
  std::vector<float> q(8, 1.0f), k(8, 0.7f), v(8, 0.1f), out(8);
  float lse = 0;
  const AttentionTask task{.query_rows = 1,
                           .key_rows = keys,
                           .head_dim = 8,
                           .value_dim = 8,
                           .q = {q.data()},
                           .k = {k.data()},
                           .v = {v.data()},
                           .out = {out.data()},
                           .lse = {&lse}};
  ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
  const double score = 8.0 * double{0.7f};
  EXPECT_NEAR(out[3], 0.1, 1e-6);
  EXPECT_NEAR(lse, score + std::log(1e6), 1e-5 * (1 + score + std::log(1e6)));
}

TEST_P(AttentionTest, MergingPartsIsMergingTheWhole) {
  auto device = MakeDeviceUnderTest();
  for (int seed = 0; seed < Rounds(60) && !HasFailure(); ++seed) {
    std::mt19937_64 random(1000 + seed);
    CaseShape shape = RandomShape(random);
    shape.result = Result::kMerge;
    shape.out_dtype = DataType::kFloat32;
    shape.diagonal_shift = static_cast<int64_t>(random() % 200) - 50;
    AttentionCase c(shape, random);
    int64_t begin = 0;
    while (true) {
      const int64_t end =
          std::min<int64_t>(shape.key_rows, begin + static_cast<int64_t>(random() % 100));
      const AttentionTask task = c.Task(begin, end);
      ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
      begin = end;
      if (end == shape.key_rows) break;
    }
    EXPECT_EQ(WhatIsWrong(c, device->info()), "") << shape.Describe();
  }
}

TEST_P(AttentionTest, SameBitsOnAnyNumberOfThreads) {
  for (int seed = 0; seed < Rounds(25); ++seed) {
    std::vector<std::vector<std::byte>> results;
    for (int threads : {1, 2, 3, 2}) {
      auto device = MakeDeviceUnderTest(threads);
      std::mt19937_64 random(2000 + seed);
      AttentionCase c(RandomShape(random), random);
      const AttentionTask task = c.Task();
      ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
      results.push_back(c.Written());
    }
    EXPECT_THAT(results, testing::Each(results[0])) << seed;
  }
}

// Many blocks of threads at once, on aligned rows, repeatedly: a race would change bits.
TEST_P(AttentionTest, SameBitsEveryTime) {
  auto device = MakeDeviceUnderTest();
  const bool is_gpu = device->info().name.find("NVIDIA") != std::string::npos;
  for (int64_t dim : {64, 128}) {
    std::mt19937_64 random(10);
    AttentionCase c({.dtype = DataType::kBFloat16,
                     .out_dtype = DataType::kBFloat16,
                     .mask = Mask::kDiagonal,
                     .batch = is_gpu ? 4 : 2,
                     .heads = is_gpu ? 8 : 1,
                     .query_rows = is_gpu ? 2048 : 200,
                     .key_rows = is_gpu ? 2048 : 300,
                     .head_dim = dim,
                     .value_dim = dim,
                     .scale = 0.1f,
                     .gap_unit = 8},
                    random);
    const AttentionTask task = c.Task();
    std::vector<std::byte> first;
    for (int round = 0; round < (is_gpu ? 20 : 2); ++round) {
      ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
      if (round == 0) first = c.Written();
      ASSERT_TRUE(c.Written() == first) << "dim " << dim << " " << round;
    }
    if (is_gpu) continue;  // the float64 loop would take minutes
    EXPECT_EQ(WhatIsWrong(c, device->info()), "");
  }
}

TEST_P(AttentionTest, WithoutKeysWritesZerosAndMergesNothing) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(5);
  for (Result result : {Result::kWrite, Result::kMerge}) {
    for (int64_t key_rows : {0, 70, 140}) {
      AttentionCase c({.dtype = key_rows == 140 ? DataType::kBFloat16 : DataType::kFloat32,
                       .result = result,
                       .mask = Mask::kDiagonal,
                       .diagonal_shift = -140,
                       .query_rows = 140,
                       .key_rows = key_rows},
                      random);
      const AttentionTask task = c.Task();
      auto figures = device->Attend({&task, 1}, {});
      ASSERT_TRUE(figures.ok());
      EXPECT_EQ(figures->scores, 0);
      if (result == Result::kMerge) {
        EXPECT_EQ(c.out.bytes(), c.old_out.bytes());
        EXPECT_EQ(c.row_max.bytes(), c.old_max.bytes());
        EXPECT_EQ(c.row_sum.bytes(), c.old_sum.bytes());
      } else {
        for (int64_t i = 0; i < 140; ++i) {
          EXPECT_EQ(c.lse.Get(0, i, 0, 0), -std::numeric_limits<double>::infinity());
          for (int64_t x = 0; x < 8; ++x) EXPECT_EQ(c.out.Get(0, i, 0, x), 0.0);
        }
      }
    }
  }
}

// Tiles that a window hides cost nothing, on either side of it.
TEST_P(AttentionTest, KeysOutsideOfAWindowAreNotComputed) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(7);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    AttentionCase c({.dtype = dtype,
                     .mask = Mask::kDiagonal,
                     .left = 50,
                     .right = 3,
                     .heads = 2,
                     .query_rows = 1000,
                     .key_rows = 1000,
                     .head_dim = 64,
                     .value_dim = 64,
                     .scale = 0.1f,
                     .gap_unit = 8},
                    random);
    const AttentionTask task = c.Task();
    const auto figures = device->Attend({&task, 1}, {});
    ASSERT_TRUE(figures.ok());
    EXPECT_EQ(WhatIsWrong(c, device->info()), "") << c.shape.Describe();
    EXPECT_LT(figures->scores, 2 * 1000 * (50 + 1 + 3 + 200)) << "a tile has 200 rows and keys";
  }
}

// NaN leaves rows as they are whose window begins behind it.
TEST_P(AttentionTest, ValuesBeforeAWindowAreNotRead) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(8);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    AttentionCase c({.dtype = dtype,
                     .mask = Mask::kDiagonal,
                     .left = 30,
                     .query_rows = 200,
                     .key_rows = 200,
                     .head_dim = 64,
                     .value_dim = 64,
                     .gap_unit = 8},
                    random);
    for (int64_t x = 0; x < 64; ++x) {
      c.k.Set(0, 100, 0, x, std::numeric_limits<float>::quiet_NaN());
      c.v.Set(0, 10, 0, x, std::numeric_limits<float>::infinity());
    }
    const AttentionTask task = c.Task();
    ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
    for (int64_t i = 0; i < 200; ++i) {
      const double out = c.out.Get(0, i, 0, 5), lse = c.Lse(0, i, 0);
      if (i >= 100 && i <= 130) {
        EXPECT_TRUE(std::isnan(out) && std::isnan(lse)) << i;
      } else {
        EXPECT_EQ(std::isinf(out), i >= 10 && i <= 40) << i;
        EXPECT_TRUE(std::isfinite(lse)) << i;
      }
    }
  }
}

TEST_P(AttentionTest, LseMayBeLeftOut) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(6);
  AttentionCase c({.query_rows = 5, .key_rows = 9}, random);
  AttentionTask task = c.Task();
  ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
  const std::vector<std::byte> with_lse = c.out.bytes();
  task.lse = {};
  ASSERT_TRUE(device->Attend({&task, 1}, {}).ok());
  EXPECT_EQ(c.out.bytes(), with_lse);
}

// Cuts keys on a GPU of any speed.
TEST_P(AttentionTest, KeysThatTakeALaunchTooLongAreCut) {
  if (!absl::StartsWith(GetParam(), "cuda/native")) {
    GTEST_SKIP() << GetParam() << " has no native launches";
  }
  DeviceOptions options = OptionsFor(GetParam(), 2);
  options.launch_seconds = 1e-6;
  auto made = MakeDevice(options);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::unique_ptr<Device> device = Mirrored(*std::move(made));
  std::mt19937_64 random(9);
  const CaseShape plain{.dtype = DataType::kBFloat16,
                        .heads = 2,
                        .query_rows = 70,
                        .key_rows = 3000,
                        .head_dim = 64,
                        .value_dim = 64};
  CaseShape merged = plain;
  merged.dtype = DataType::kFloat32;
  merged.result = Result::kMerge;
  // Rows keep their distances in launches of a part of the keys.
  CaseShape windowed = plain;
  windowed.mask = Mask::kDiagonal;
  windowed.diagonal_shift = 2200;
  windowed.left = 1500;
  windowed.softcap = 30;
  windowed.gap_unit = 8;
  CaseShape biased = windowed;
  biased.bias = 8;
  for (const CaseShape& shape : {plain, merged, windowed, biased}) {
    AttentionCase c(shape, random);
    const AttentionTask task = c.Task();
    int launches = 0;
    const auto figures = device->Attend({&task, 1}, {.progress = [&](int64_t) { ++launches; }});
    ASSERT_TRUE(figures.ok()) << figures.status();
    EXPECT_GT(launches, 3);
    EXPECT_EQ(WhatIsWrong(c, device->info()), "") << c.shape.Describe();
  }
}

}  // namespace
}  // namespace hilbert_ring
