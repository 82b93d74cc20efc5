// The reports of Device::Attend while it computes, and its stops.
#include <atomic>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/device/attention_case.h"
#include "tests/unit/device/devices_under_test.h"

namespace hilbert_ring {
namespace {

class AttentionControlTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> MakeDeviceUnderTest() { return DeviceFor(GetParam(), 2); }
};

HILBERT_RING_FOR_ALL_DEVICES(AttentionControlTest);

TEST_P(AttentionControlTest, CountsTheScoresItComputes) {
  auto device = MakeDeviceUnderTest();
  std::mt19937_64 random(7);
  CaseShape shape{.batch = 2, .heads = Rounds(3), .query_rows = 500, .key_rows = 500};
  const int64_t all = 2 * shape.heads * 500 * 500;
  for (int trial = 0; trial < 6; ++trial) {
    const Mask mask = static_cast<Mask>(trial % 3);
    shape.mask = mask;
    shape.dtype = trial < 3 ? DataType::kFloat32 : DataType::kBFloat16;
    AttentionCase c(shape, random);
    for (int64_t i = 0; i < 2 * 500; ++i) c.query_positions[i] = c.key_positions[i] = i % 500;
    std::atomic<int64_t> reported = 0;
    const AttentionTask task = c.Task();
    auto figures = device->Attend({&task, 1}, {.progress = [&](int64_t n) { reported += n; }});
    ASSERT_TRUE(figures.ok());
    EXPECT_EQ(figures->scores, reported);
    if (mask == Mask::kNone) {
      EXPECT_EQ(reported, all);
    } else {
      EXPECT_GE(reported, all / 2);
      EXPECT_LE(reported, all * 2 / 3);
    }
  }
}

// A single tile of queries with minutes of keys.
TEST_P(AttentionControlTest, AsksOftenWithinATile) {
  auto device = MakeDeviceUnderTest();
  std::vector<float> row(256, 0.01f);
  std::vector<float> out(256 * 8);
  float lse[8];
  const AttentionTask task{.heads = 8,
                           .query_rows = 1,
                           .key_rows = int64_t{1} << 40,
                           .head_dim = 256,
                           .value_dim = 256,
                           .q = {row.data()},
                           .k = {row.data()},
                           .v = {row.data()},
                           .out = {out.data(), 0, 0, 256},
                           .lse = {lse, 0, 0, 1}};
  int asked = 0;
  const AttendControl control{.cancelled = [&] { return ++asked > 10; }};
  EXPECT_EQ(device->Attend({&task, 1}, control).status().code(), absl::StatusCode::kCancelled);
  const AttentionTask none{.head_dim = 8, .value_dim = 8};
  EXPECT_TRUE(device->Attend({&none, 1}, {}).ok()) << "the device works on";
}

}  // namespace
}  // namespace hilbert_ring
