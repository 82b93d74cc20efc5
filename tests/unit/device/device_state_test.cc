// A row's softmax state on a device: added zero keys, and the final rounding.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/device/device.h"
#include "engine/spec/numbers.h"
#include "gtest/gtest.h"
#include "tests/unit/device/devices_under_test.h"
#include "tests/unit/device/strided_array.h"

namespace hilbert_ring {
namespace {

class DeviceStateTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Device> device_ = DeviceFor(GetParam(), 2);
};

HILBERT_RING_FOR_ALL_DEVICES(DeviceStateTest);

// A row's softmax state.
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

TEST_P(DeviceStateTest, ZeroKeys) {
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
    const MergeTask task{.batch = 2,
                         .rows = kStateRows,
                         .heads = 3,
                         .value_dim = 16,
                         .out = out.View(),
                         .state = max.StateWith(sum),
                         .scale = scale,
                         .count = count};
    ASSERT_TRUE(device_->Merge({&task, 1}).ok());
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
}

TEST_P(DeviceStateTest, MergesPartsByTheirDenominators) {
  std::mt19937_64 random(2);
  constexpr double kScale = 0.3;
  StridedArray out(DataType::kFloat32, {2, kStateRows * kStateRows, 3, 16}, random);
  StridedArray max(DataType::kFloat32, {2, kStateRows * kStateRows, 3, 1}, random);
  StridedArray sum = max, part_max = max, part_sum = max, values = out;
  out.FillNormal(1.0f, random);
  values.FillNormal(1.0f, random);
  const auto own = [](int64_t i) { return kStates[i / kStateRows]; };
  const auto other = [](int64_t i) { return kStates[i % kStateRows]; };
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < kStateRows * kStateRows; ++i)
      for (int64_t h = 0; h < 3; ++h) {
        max.Set(b, i, h, 0, own(i).max);
        sum.Set(b, i, h, 0, own(i).sum);
        part_max.Set(b, i, h, 0, other(i).max);
        part_sum.Set(b, i, h, 0, other(i).sum);
        for (int64_t x = 0; x < 16; ++x) {
          if (own(i).sum == 0) out.Set(b, i, h, x, 0.0f);
          if (other(i).sum == 0) values.Set(b, i, h, x, 0.0f);
        }
      }
  const StridedArray before = out;
  const MergeTask task{.batch = 2,
                       .rows = kStateRows * kStateRows,
                       .heads = 3,
                       .value_dim = 16,
                       .out = out.View(),
                       .state = max.StateWith(sum),
                       .scale = -kScale,
                       .values = std::as_const(values).View(),
                       .part = part_max.StateWith(part_sum)};
  ASSERT_TRUE(device_->Merge({&task, 1}).ok());
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < kStateRows * kStateRows; ++i)
      for (int64_t h = 0; h < 3; ++h) {
        const State now{static_cast<float>(max.Get(b, i, h, 0)),
                        static_cast<float>(sum.Get(b, i, h, 0))};
        if (std::isnan(own(i).sum) || std::isnan(other(i).sum)) {
          EXPECT_TRUE(std::isnan(now.sum)) << i;
          continue;
        }
        const double old_lse = own(i).Lse(kScale), part_lse = other(i).Lse(kScale);
        const double most = std::max(old_lse, part_lse);
        if (most == -INFINITY) {
          EXPECT_EQ(now.Lse(kScale), most);
          continue;
        }
        const double expected =
            most + std::log(std::exp(old_lse - most) + std::exp(part_lse - most));
        EXPECT_NEAR(now.Lse(kScale), expected, 1e-6 * (1 + std::abs(expected))) << i;
        for (int64_t x = 0; x < 16; ++x) {
          EXPECT_NEAR(out.Get(b, i, h, x),
                      before.Get(b, i, h, x) * std::exp(old_lse - expected) +
                          values.Get(b, i, h, x) * std::exp(part_lse - expected),
                      2e-6 + std::abs(expected) * 0x1p-50)
              << i;
        }
      }
}

TEST_P(DeviceStateTest, FinalizeMakesLseOfTheStateInPlace) {
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

TEST_P(DeviceStateTest, FinalizeAddsSinks) {
  std::mt19937_64 random(4);
  const float sinks[] = {-300.0f, 0.5f, 4.0f};
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
                          .to = out.View(),
                          .scale = 0.5f,
                          .state = max.StateWith(sum),
                          .lse = max.Lse(),
                          .score_scale = -0.3f,
                          .sinks = sinks};
  ASSERT_TRUE(device_->Finalize({&task, 1}).ok());
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < kStateRows; ++i)
      for (int64_t h = 0; h < 3; ++h) {
        const double lse = max.Get(b, i, h, 0);
        if (std::isnan(kStates[i].sum)) {
          EXPECT_TRUE(std::isnan(lse));
          continue;
        }
        const double keys = kStates[i].Lse(-0.3f), sink = sinks[h];
        const double most = std::max(keys, sink);
        const double expected = most + std::log(std::exp(keys - most) + std::exp(sink - most));
        EXPECT_NEAR(lse, expected, 1e-6 * (1 + std::abs(expected))) << i;
        for (int64_t x = 0; x < 8; ++x) {
          EXPECT_NEAR(out.Get(b, i, h, x), 0.5 * before.Get(b, i, h, x) * std::exp(keys - expected),
                      1e-6)
              << i;
        }
      }
}

// Every pair of upper bits, with the lower bits that decide the rounding, compared bit by bit.
TEST_P(DeviceStateTest, FinalizeRoundsAsNumbersDo) {
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

TEST_P(DeviceStateTest, FinalizeInPlace) {
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
  // Narrowed: each row and head begins where it did.
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

}  // namespace
}  // namespace hilbert_ring
