// What a device does besides attention: memory, zero keys, the final rounding, packing.
#include "engine/device/device.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/spec/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/device/devices_under_test.h"
#include "tests/unit/device/strided_array.h"

namespace hilbert_ring {
namespace {

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> device_ = DeviceFor(GetParam(), 2);
};

HILBERT_RING_FOR_ALL_DEVICES(DeviceTest);

TEST(MakeDevice, RefusesOptionsOutOfRange) {
  for (int threads : {-1, 1025}) {
    const absl::Status status = MakeDevice({.threads = threads}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("threads is"));
  }
  EXPECT_EQ(MakeDevice({.kind = static_cast<DeviceKind>(99)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MakeDevice, TakesWhatTheProcessMayUse) {
  const DeviceInfo info = MakeDevice({}).value()->info();
  EXPECT_GE(info.threads, 1);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_THAT(info.name, testing::HasSubstr("thread"));
  EXPECT_EQ(info.kernel, "cpu/" + RunnableCpuInstructions().front());
}

TEST(MakeDevice, NamesTheInstructionsThatTheMachineRuns) {
  const std::vector<std::string> runnable = RunnableCpuInstructions();
  EXPECT_THAT(runnable, testing::Contains("bf16-emulated"));
  for (const char* wrong : {"avx9", "AVX2", " "}) {
    const absl::Status status = MakeDevice({.instructions = wrong}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr(absl::StrCat("instructions is \"", wrong, "\"")));
    for (const std::string& name : runnable) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr(name));
    }
  }
}

// Devices of one process do not share the choice.
TEST(MakeDevice, TwoInstructionSetsSideBySide) {
  const std::vector<std::string> runnable = RunnableCpuInstructions();
  const auto first = MakeDevice({.instructions = runnable.front()}).value();
  const auto last = MakeDevice({.instructions = runnable.back()}).value();
  EXPECT_EQ(first->info().kernel, "cpu/" + runnable.front());
  EXPECT_EQ(last->info().kernel, "cpu/" + runnable.back());
}

TEST_P(DeviceTest, AllocatesZeros) {
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{5 << 20}}) {
    auto buffer = device_->Allocate(bytes).value();
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::vector<std::byte> found(bytes, std::byte{7});
    ASSERT_TRUE(device_->CopyOut(found.data(), buffer->data(), bytes).ok());
    EXPECT_THAT(found, testing::Each(std::byte{0}));
    std::fill(found.begin(), found.end(), std::byte{7});
    ASSERT_TRUE(device_->CopyIn(buffer->data(), found.data(), bytes).ok());
  }
}

TEST_P(DeviceTest, SaysWhenThereIsNoMemory) {
  const absl::Status status = device_->Allocate(int64_t{1} << 60).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("1152921504606846976 bytes"));
  EXPECT_EQ(device_->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceTest, AllocatesFromAnyThread) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        auto buffer = device_->Allocate(4096).value();
        std::byte found{7};
        ASSERT_TRUE(device_->CopyOut(&found, buffer->data() + 7, 1).ok());
        EXPECT_EQ(found, std::byte{0});
        ASSERT_TRUE(device_->CopyIn(buffer->data() + 7, "7", 1).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(DeviceTest, CopiesInAndOut) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4097}, int64_t{9'000'001}}) {
    std::vector<std::byte> from(bytes + 7), to(bytes + 7, std::byte{9});
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 256);
    auto buffer = device_->Allocate(bytes + 16).value();
    // At addresses that are aligned to nothing.
    ASSERT_TRUE(device_->CopyIn(buffer->data() + 3, from.data() + 5, bytes).ok());
    ASSERT_TRUE(device_->CopyOut(to.data() + 1, buffer->data() + 3, bytes).ok());
    EXPECT_TRUE(std::equal(to.begin() + 1, to.begin() + 1 + bytes, from.begin() + 5));
    EXPECT_EQ(to[0], std::byte{9});
    EXPECT_EQ(to[bytes + 1], std::byte{9});
    std::vector<std::byte> around(bytes + 16);
    ASSERT_TRUE(device_->CopyOut(around.data(), buffer->data(), bytes + 16).ok());
    EXPECT_EQ(around[2], std::byte{0});
    EXPECT_EQ(around[bytes + 3], std::byte{0});
  }
}

TEST_P(DeviceTest, CopiesRowsToTheirPlaces) {
  std::mt19937_64 random(9);
  for (const int64_t row_bytes : {1, 8, 48, 4096, 5000}) {
    for (const int64_t count : {0, 1, 500, 3000}) {
      std::vector<int64_t> places(2 * count + 1);
      for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
      std::shuffle(places.begin(), places.end(), random);
      std::vector<std::byte> from(count * row_bytes);
      for (std::byte& b : from) b = static_cast<std::byte>(random());
      std::vector<std::byte> expected(places.size() * row_bytes), found(expected.size());
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(from.begin() + i * row_bytes, row_bytes,
                    expected.begin() + places[i] * row_bytes);
      }
      auto buffer = device_->Allocate(static_cast<int64_t>(expected.size())).value();
      ASSERT_TRUE(device_
                      ->CopyRowsIn({.to = buffer->data(),
                                    .from = from.data(),
                                    .rows = {places.data(), static_cast<size_t>(count)},
                                    .row_bytes = row_bytes})
                      .ok());
      ASSERT_TRUE(device_->CopyOut(found.data(), buffer->data(), buffer->bytes()).ok());
      EXPECT_EQ(found, expected) << count << " rows of " << row_bytes << " bytes";
    }
  }
}

TEST_P(DeviceTest, Fills) {
  constexpr int64_t kCount = 70'001;
  auto buffer = device_->Allocate(kCount * 8 + 64).value();
  std::vector<float> floats(kCount + 1);
  auto* to = reinterpret_cast<float*>(buffer->data());
  ASSERT_TRUE(device_->FillFloats(to, kCount, -INFINITY).ok());
  ASSERT_TRUE(device_->FillFloats(to, 0, 1.0f).ok());
  ASSERT_TRUE(device_->CopyOut(floats.data(), to, (kCount + 1) * 4).ok());
  EXPECT_EQ(floats.back(), 0.0f);
  floats.pop_back();
  EXPECT_THAT(floats, testing::Each(-INFINITY));

  std::vector<int64_t> slots(kCount + 1);
  const int64_t first = (int64_t{1} << 40) - 5;
  auto* sequence = reinterpret_cast<int64_t*>(buffer->data()) + 1;
  ASSERT_TRUE(device_->FillSequence(sequence, kCount, first).ok());
  ASSERT_TRUE(device_->CopyOut(slots.data(), sequence, (kCount + 1) * 8).ok());
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(slots[i], first + i);
  EXPECT_EQ(slots.back(), 0);
}

// Rows come and go while others are computed.
TEST_P(DeviceTest, CopiesFromOtherThreadsWhileItAttends) {
  std::vector<float> row(64, 0.5f);
  auto rows = device_->Allocate(400 * 64 * 4).value();
  for (int64_t i = 0; i < 400; ++i) {
    ASSERT_TRUE(device_->CopyIn(rows->data() + i * 256, row.data(), 256).ok());
  }
  auto out = device_->Allocate(400 * 64 * 4 + 400 * 4).value();
  auto other = device_->Allocate(1 << 20).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> sent(1 << 19, static_cast<std::byte>(t + 1)), back(1 << 19);
      std::byte* const place = other->data() + t * (1 << 19);
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(device_->CopyIn(place, sent.data(), 1 << 19).ok());
        ASSERT_TRUE(device_->CopyOut(back.data(), place, 1 << 19).ok());
        ASSERT_EQ(back, sent);
      }
    });
  }
  const AttentionTask task{.query_rows = 400,
                           .key_rows = 400,
                           .head_dim = 64,
                           .value_dim = 64,
                           .q = {rows->data(), 0, 64},
                           .k = {rows->data(), 0, 64},
                           .v = {rows->data(), 0, 64},
                           .out = {out->data(), 0, 64},
                           .lse = {reinterpret_cast<float*>(out->data()) + 400 * 64, 0, 1}};
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(device_->Attend({&task, 1}, {}).ok());
  for (std::thread& thread : threads) thread.join();
  std::vector<float> found(400 * 64);
  ASSERT_TRUE(device_->CopyOut(found.data(), out->data(), 400 * 256).ok());
  for (const float value : found) ASSERT_NEAR(value, 0.5f, 1e-6);
}

// A row's softmax state, with the scale of its scores.
struct State {
  float max;
  float sum;
  double Lse(double scale) const {
    return sum == 0 ? -std::numeric_limits<double>::infinity()
                    : std::abs(scale) * max + std::log(double{sum});
  }
};

constexpr State kStates[] = {{-INFINITY, 0.0f}, {0.0f, 1.0f},      {3.5f, 2.5f},
                             {-3.5f, 1.0f},     {300.0f, 70.0f},   {-300.0f, 1.0f},
                             {2000.0f, 1.0f},   {-2000.0f, 1e6f},  {0x1p40f, 1.0f},
                             {-0x1p40f, 3.0f},  {1.0f, float{NAN}}};
constexpr int64_t kStateRows = std::size(kStates);

void FillStates(StridedArray& max, StridedArray& sum, StridedArray& out, int64_t dim) {
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < kStateRows; ++i)
      for (int64_t h = 0; h < 3; ++h) {
        max.Set(b, i, h, 0, kStates[i].max);
        sum.Set(b, i, h, 0, kStates[i].sum);
        for (int64_t x = 0; x < dim && kStates[i].sum == 0; ++x) out.Set(b, i, h, x, 0.0f);
      }
}

TEST_P(DeviceTest, ZeroKeys) {
  std::mt19937_64 random(1);
  for (const auto& [count, scale] :
       {std::pair{int64_t{0}, 1.0f}, std::pair{int64_t{1}, -0.3f}, std::pair{int64_t{13}, 1.0f},
        std::pair{int64_t{1} << 40, 0.125f}, std::pair{int64_t{5}, 0.0f}}) {
    StridedArray out(DataType::kFloat32, {2, kStateRows, 3, 16}, random);
    StridedArray max(DataType::kFloat32, {2, kStateRows, 3, 1}, random);
    StridedArray sum = max;
    out.FillNormal(1.0f, random);
    FillStates(max, sum, out, 16);
    const StridedArray before = out;
    const ZeroKeysTask task{.batch = 2,
                            .rows = kStateRows,
                            .heads = 3,
                            .value_dim = 16,
                            .out = out.View(),
                            .state = max.StateWith(sum),
                            .scale = scale,
                            .count = count};
    ASSERT_TRUE(device_->AddZeroKeys({&task, 1}).ok());
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < kStateRows; ++i)
        for (int64_t h = 0; h < 3; ++h) {
          const State now{static_cast<float>(max.Get(b, i, h, 0)),
                          static_cast<float>(sum.Get(b, i, h, 0))};
          if (std::isnan(kStates[i].sum)) {
            EXPECT_TRUE(std::isnan(now.sum));
            continue;
          }
          const double old_lse = kStates[i].Lse(scale);
          const double log_count = count == 0 ? -INFINITY : std::log(static_cast<double>(count));
          const double most = std::max(old_lse, log_count);
          const double expected =
              most == -INFINITY
                  ? most
                  : most + std::log(std::exp(old_lse - most) + std::exp(log_count - most));
          const double factor = old_lse == -INFINITY ? 0.0 : std::exp(old_lse - expected);
          if (std::isinf(expected)) {
            EXPECT_EQ(now.Lse(scale), expected);
          } else {
            EXPECT_NEAR(now.Lse(scale), expected, 1e-6 * (1 + std::abs(expected)));
          }
          for (int64_t x = 0; x < 16; ++x) {
            EXPECT_NEAR(out.Get(b, i, h, x), before.Get(b, i, h, x) * factor, 1e-6) << i;
          }
        }
    EXPECT_TRUE(out.GapsAreUntouched());
    EXPECT_TRUE(max.GapsAreUntouched());
    EXPECT_TRUE(sum.GapsAreUntouched());
  }
  const ZeroKeysTask negative{.count = -1};
  EXPECT_EQ(device_->AddZeroKeys({&negative, 1}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceTest, FinalizeMakesLseOfTheStateInPlace) {
  std::mt19937_64 random(3);
  for (const float scale : {1.0f, -0.3f, 0.0f}) {
    StridedArray out(DataType::kFloat32, {2, kStateRows, 3, 8}, random);
    out.FillNormal(1.0f, random);
    StridedArray max(DataType::kFloat32, {2, kStateRows, 3, 1}, random);
    StridedArray sum = max;
    FillStates(max, sum, out, 8);
    const StridedArray before = out;
    const FinalizeTask task{.batch = 2,
                            .rows = kStateRows,
                            .heads = 3,
                            .value_dim = 8,
                            .from = std::as_const(out).View(),
                            .state = max.StateWith(sum),
                            .lse = max.Lse(),
                            .score_scale = scale};
    ASSERT_TRUE(device_->Finalize({&task, 1}).ok());
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < kStateRows; ++i)
        for (int64_t h = 0; h < 3; ++h) {
          if (std::isnan(kStates[i].sum)) {
            EXPECT_TRUE(std::isnan(max.Get(b, i, h, 0)));
          } else {
            EXPECT_FLOAT_EQ(static_cast<float>(max.Get(b, i, h, 0)),
                            static_cast<float>(kStates[i].Lse(scale)));
          }
        }
    EXPECT_EQ(out.bytes(), before.bytes()) << "without data for it, out stays as it is";
  }
}

TEST_P(DeviceTest, FinalizeScalesIntoAnyType) {
  std::mt19937_64 random(2);
  for (DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    for (int64_t dim : {8, 24, 80, 256, 13}) {
      const Shape shape{2, 40, 3, dim};
      StridedArray from(DataType::kFloat32, shape, random), to(dtype, shape, random);
      from.FillNormal(10.0f, random);
      const FinalizeTask task{.batch = 2,
                              .rows = 40,
                              .heads = 3,
                              .value_dim = dim,
                              .from = std::as_const(from).View(),
                              .to_dtype = dtype,
                              .to = to.View(),
                              .scale = 1.0f / 3};
      ASSERT_TRUE(device_->Finalize({&task, 1}).ok());
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t i = 0; i < 40; ++i)
          for (int64_t h = 0; h < 3; ++h)
            for (int64_t x = 0; x < dim; ++x) {
              float expected;
              StoreElement(dtype, &expected, 0,
                           static_cast<float>(from.Get(b, i, h, x)) * (1.0f / 3));
              ASSERT_EQ(to.Get(b, i, h, x), LoadElement(dtype, &expected, 0));
            }
      EXPECT_TRUE(to.GapsAreUntouched());
    }
  }
}

// Every pair of upper bits with the lower bits that decide the rounding, bit for bit.
TEST_P(DeviceTest, FinalizeRoundsAsNumbersDo) {
  std::vector<float> from;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (uint32_t lower : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u,
                           0xffffu, 0x3000u, 0x2fffu, 0x3001u, 0x5000u, 0x9000u, 0xb000u}) {
      from.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  const int64_t rows = static_cast<int64_t>(from.size()) / 256;
  for (DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    std::vector<uint16_t> to(from.size());
    const FinalizeTask task{.rows = rows,
                            .heads = 1,
                            .value_dim = 256,
                            .from = {from.data(), 0, 256, 256},
                            .to_dtype = dtype,
                            .to = {to.data(), 0, 256, 256}};
    ASSERT_TRUE(device_->Finalize({&task, 1}).ok());
    for (size_t i = 0; i < from.size(); ++i) {
      uint16_t expected;
      StoreElement(dtype, &expected, 0, from[i]);
      if (std::isnan(from[i])) {
        ASSERT_TRUE(std::isnan(LoadElement(dtype, &to[i], 0))) << i;
      } else {
        ASSERT_EQ(to[i], expected) << std::bit_cast<uint32_t>(from[i]);
      }
    }
  }
}

TEST_P(DeviceTest, FinalizeInPlace) {
  std::vector<float> data(30 * 2 * 16);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) / 7;
  const std::vector<float> before = data;
  FinalizeTask task{.rows = 30,
                    .heads = 2,
                    .value_dim = 16,
                    .from = {data.data(), 0, 32, 16},
                    .to = {data.data(), 0, 32, 16},
                    .scale = 0.5f};
  ASSERT_TRUE(device_->Finalize({&task, 1}).ok());
  for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], before[i] * 0.5f);
  // Narrowed, each row and head at the start of its old place.
  task.to_dtype = DataType::kBFloat16;
  task.to = {data.data(), 0, 64, 32};
  task.scale = 2.0f;
  ASSERT_TRUE(device_->Finalize({&task, 1}).ok());
  for (int64_t piece = 0; piece < 60; ++piece) {
    for (int64_t x = 0; x < 16; ++x) {
      EXPECT_EQ(LoadElement(DataType::kBFloat16, data.data() + piece * 16, x),
                BFloat16ToFloat(FloatToBFloat16(before[piece * 16 + x])));
    }
  }
}

// The kernels' own conversion of 16-bit inputs: attention to one key returns its value.
TEST_P(DeviceTest, EveryHalfIsReadExactly) {
  for (DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    std::vector<uint16_t> values(65536);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
    const std::vector<uint16_t> zeros(8);
    std::vector<float> out(values.size()), lse(values.size() / 8);
    const AttentionTask task{.dtype = dtype,
                             .batch = 65536 / 8,
                             .query_rows = 1,
                             .key_rows = 1,
                             .head_dim = 8,
                             .value_dim = 8,
                             .q = {zeros.data()},
                             .k = {zeros.data()},
                             .v = {values.data(), 8},
                             .out = {out.data(), 8},
                             .lse = {lse.data(), 1}};
    ASSERT_TRUE(device_->Attend({&task, 1}, {}).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = LoadElement(dtype, values.data(), i);
      if (std::fpclassify(expected) == FP_SUBNORMAL && GetParam() == "cpu/avx512-bf16") {
        continue;  // bfloat16's are 0 to that instruction
      }
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(out[i])) << i;
      } else {
        ASSERT_EQ(out[i], expected) << i;
      }
    }
  }
}

TEST_P(DeviceTest, PacksStridedPieces) {
  std::mt19937_64 random(3);
  std::vector<std::byte> from(200'000);
  for (std::byte& b : from) b = static_cast<std::byte>(random());
  std::vector<PackTask> tasks;
  std::vector<std::vector<std::byte>> packed, expected;
  for (int i = 0; i < 40; ++i) {
    PackTask t{.rows = static_cast<int64_t>(random() % 60),
               .heads = static_cast<int64_t>(random() % 5),
               .head_bytes = static_cast<int64_t>(random() % 130)};
    t.head_stride = t.head_bytes + static_cast<int64_t>(random() % 2 * 50);
    t.row_stride = t.heads * t.head_stride + static_cast<int64_t>(random() % 3 * 100);
    t.from = from.data() + random() % 1000;
    expected.emplace_back();
    for (int64_t row = 0; row < t.rows; ++row) {
      for (int64_t head = 0; head < t.heads; ++head) {
        const auto* at =
            static_cast<const std::byte*>(t.from) + row * t.row_stride + head * t.head_stride;
        expected.back().insert(expected.back().end(), at, at + t.head_bytes);
      }
    }
    packed.emplace_back(expected.back().size());
    tasks.push_back(t);
  }
  for (size_t i = 0; i < tasks.size(); ++i) tasks[i].to = packed[i].data();
  ASSERT_TRUE(device_->Pack(tasks).ok());
  EXPECT_EQ(packed, expected);
}

TEST_P(DeviceTest, EmptyListsAreFine) {
  EXPECT_TRUE(device_->AddZeroKeys({}).ok());
  EXPECT_TRUE(device_->Finalize({}).ok());
  EXPECT_TRUE(device_->Pack({}).ok());
}

}  // namespace
}  // namespace hilbert_ring
