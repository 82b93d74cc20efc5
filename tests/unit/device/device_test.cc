// A device's calls other than attention: memory, copies, packing.
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
#include "engine/device/cpu/machine.h"
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

TEST(MakeDevice, NamesTheInstructionsThatTheMachineRuns) {
  const std::vector<std::string> runnable = RunnableCpuInstructions();
  EXPECT_THAT(runnable, testing::Contains("bf16-emulated"));
  EXPECT_THAT(runnable, testing::Contains("amx-bf16-emulated"));
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

TEST_P(DeviceTest, AllocatesZeros) {
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{5 << 20}}) {
    auto buffer = device_->Allocate(bytes).value();
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::vector<std::byte> found(bytes, std::byte{7});
    ASSERT_TRUE(device_->CopyOut(found.data(), buffer->data(), bytes).ok());
    EXPECT_EQ(std::count(found.begin(), found.end(), std::byte{0}), bytes);
    std::fill(found.begin(), found.end(), std::byte{7});
    ASSERT_TRUE(device_->CopyIn(buffer->data(), found.data(), bytes).ok());
  }
}

TEST_P(DeviceTest, SaysWhenThereIsNoMemory) {
  const absl::Status status = device_->Allocate(int64_t{1} << 60).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("1152921504606846976 bytes"));
}

TEST_P(DeviceTest, CopiesInAndOut) {
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, int64_t{4097}, int64_t{9'000'000}, int64_t{9'000'001}}) {
    std::vector<std::byte> from(bytes + 7), to(bytes + 7, std::byte{9});
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 256);
    auto buffer = device_->Allocate(bytes + 16).value();
    std::unique_ptr<HostPin> pins[2];
    if (bytes % 2 == 1) {  // pinned memory, from its first to its last byte
      pins[0] = device_->Pin(from.data() + 5, bytes).value();
      pins[1] = device_->Pin(to.data() + 1, bytes).value();
    }
    // Unaligned addresses.
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

// Rows move while others are computed.
TEST_P(DeviceTest, CopiesFromOtherThreadsWhileItAttends) {
  std::vector<float> row(64, 0.5f);
  auto rows = device_->Allocate(400 * 64 * 4).value();
  for (int64_t i = 0; i < 400; ++i) {
    ASSERT_TRUE(device_->CopyIn(rows->data() + i * 256, row.data(), 256).ok());
  }
  auto out = device_->Allocate(400 * 64 * 4 + 400 * 4).value();
  auto other = device_->Allocate(1 << 20).value();
  std::vector<std::thread> threads;
  threads.reserve(2);
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

// The kernels' own conversion of 16-bit inputs: attention to a single key returns its value.
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
        continue;  // the instruction treats bfloat16's subnormal numbers as 0
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

}  // namespace
}  // namespace hilbert_ring
