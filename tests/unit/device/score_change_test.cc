// Softcaps and biases of attention's scores, on every kernel of the machine.
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/device/attention_case.h"
#include "tests/unit/device/devices_under_test.h"

namespace hilbert_ring {
namespace {

class ScoreChangeTest : public testing::TestWithParam<std::string> {
 protected:
  // The changed scores of products, each of a query with the only key: lse is the score.
  std::vector<float> Changed(const std::vector<float>& products, float scale, float softcap) {
    const auto count = static_cast<int64_t>(products.size());
    std::vector<float> q(8 * count), k(8), out(8 * count), lse(count);
    for (int64_t i = 0; i < count; ++i) q[8 * i + 3] = products[i];
    k[3] = 1;
    const AttentionTask task{.query_rows = count,
                             .key_rows = 1,
                             .head_dim = 8,
                             .value_dim = 8,
                             .q = {q.data(), 0, 8},
                             .k = {k.data()},
                             .v = {k.data()},
                             .out = {out.data(), 0, 8},
                             .lse = {lse.data(), 0, 1},
                             .scale = scale,
                             .change = {.softcap = softcap}};
    EXPECT_TRUE(device_->Attend({&task, 1}, {}).ok());
    return lse;
  }

  // Two heads of rows with scores of 0 and a bias: lse is minus slope times distance.
  AttentionTask BiasAlone(int64_t rows, const std::vector<float>& slopes, std::vector<float>& lse) {
    zeros_.assign(8 * rows, 0.0f);
    out_.resize(2 * 8 * rows);
    lse.resize(2 * rows);
    return {.heads = 2,
            .query_rows = rows,
            .key_rows = 1,
            .head_dim = 8,
            .value_dim = 8,
            .q = {zeros_.data(), 0, 8},
            .k = {zeros_.data()},
            .v = {zeros_.data()},
            .out = {out_.data(), 0, 16, 8},
            .lse = {lse.data(), 0, 2, 1},
            .change = {.slopes = slopes.data()}};
  }

  std::unique_ptr<Device> device_ = DeviceFor(GetParam(), 2);

 private:
  std::vector<float> zeros_, out_;
};

HILBERT_RING_FOR_ALL_DEVICES(ScoreChangeTest);

TEST_P(ScoreChangeTest, CapsScoresOfAnySize) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> products = {0, kInfinity, -kInfinity};
  for (float x = 0x1p-30f; x < 0x1p30f; x *= 1.011f) {
    products.push_back(x);
    products.push_back(-x);
  }
  for (const auto& [scale, softcap] : {std::pair{1.0f, 30.0f}, {0.125f, 0.7f}, {-3.3f, 50.0f}}) {
    const std::vector<float> lse = Changed(products, scale, softcap);
    for (size_t i = 0; i < products.size(); ++i) {
      const double expected = softcap * std::tanh(double{scale} * products[i] / softcap);
      ASSERT_NEAR(lse[i], expected, 0x1p-21 * std::abs(expected)) << products[i];
    }
  }
  EXPECT_TRUE(std::isnan(Changed({std::numeric_limits<float>::quiet_NaN()}, 1, 30)[0]));
}

// The scale over the cap is a subnormal number, or more than float32 holds.
TEST_P(ScoreChangeTest, CapsAtTheEndsOfFloat32) {
  for (const auto& [scale, softcap] :
       {std::pair{1e-3f, 3e38f}, {0.1f, 1e38f}, {1e3f, 1e-37f}, {2e38f, 0.5f}}) {
    const std::vector<float> products = {0, 0.3f, -70};
    const std::vector<float> lse = Changed(products, scale, softcap);
    for (size_t i = 0; i < products.size(); ++i) {
      const double expected = softcap * std::tanh(double{scale} * products[i] / softcap);
      EXPECT_NEAR(lse[i], expected, 1e-6 * (1 + std::abs(expected))) << scale << " " << softcap;
    }
  }
}

// Positions of 2^40 are a thousand apart, and rows 2^40 from the diagonal.
TEST_P(ScoreChangeTest, DistancesAreExact) {
  constexpr int64_t kRows = 5, kFar = int64_t{1} << 40;
  const std::vector<float> slopes = {0.5f, -3.0f};
  std::vector<int64_t> queries, keys = {kFar};
  for (int64_t i = 0; i < kRows; ++i) queries.push_back(kFar + 1001 * (i - 2));
  for (const bool by_positions : {true, false}) {
    std::vector<float> lse;
    AttentionTask task = BiasAlone(kRows, slopes, lse);
    task.change.row_distance = 7;
    task.diagonal_shift = -kFar / 7;
    if (by_positions) {
      task.query_positions = {queries.data(), 0, 1};
      task.key_positions = {keys.data(), 0, 1};
    }
    ASSERT_TRUE(device_->Attend({&task, 1}, {}).ok());
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t distance =
          std::abs(by_positions ? queries[i] - kFar : 7 * (i + task.diagonal_shift));
      for (int64_t h = 0; h < 2; ++h) {
        const double expected = -double{slopes[h]} * static_cast<double>(distance);
        EXPECT_NEAR(lse[2 * i + h], expected, 0x1p-23 * std::abs(expected)) << i << by_positions;
      }
    }
  }
}

// Differences of coordinates far from 0 are exact, and one axis may be alone.
TEST_P(ScoreChangeTest, DistancesOfCoordinates) {
  constexpr int64_t kRows = 5;
  const std::vector<float> slopes = {0.5f, -3.0f};
  const std::vector<float> keys = {0x1p20f, -7, 2.5f};
  const std::vector<float> queries = {0x1p20f, -7,       2.5f,    0x1p20f + 3, -3, 2.5f, NAN, 0, 0,
                                      0x1p60f, -0x1p60f, 0x1p60f, 0x1p20f,     -7, 0};
  for (const int axes : {2, 3}) {
    std::vector<float> lse;
    AttentionTask task = BiasAlone(kRows, slopes, lse);
    task.change.axes = axes;
    task.query_coordinates = {queries.data(), 0, 3};
    task.key_coordinates = {keys.data(), 0, 3};
    ASSERT_TRUE(device_->Attend({&task, 1}, {}).ok());
    for (int64_t i = 0; i < kRows; ++i) {
      double square = 0;
      for (int x = 0; x < axes; ++x) {
        square += std::pow(double{queries[3 * i + x]} - double{keys[x]}, 2);
      }
      const double distance = std::isnan(square) ? 0 : std::sqrt(square);
      for (int64_t h = 0; h < 2; ++h) {
        const double expected = -double{slopes[h]} * distance;
        EXPECT_NEAR(lse[2 * i + h], expected, 5 * 0x1p-24 * std::abs(expected)) << i << axes;
      }
    }
  }
}

// An ordering without a causal mask gives positions that hide no key.
TEST_P(ScoreChangeTest, PositionsWithoutAMask) {
  std::mt19937_64 random(1);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    AttentionCase c({.dtype = dtype,
                     .mask = Mask::kPositions,
                     .bias = 8,
                     .batch = 2,
                     .heads = 2,
                     .query_rows = 90,
                     .key_rows = 200,
                     .head_dim = 64,
                     .value_dim = 64,
                     .scale = 0.1f,
                     .gap_unit = 8},
                    random);
    for (int64_t& position : c.query_positions) position += 1000;  // the case's mask hides no key
    AttentionTask task = c.Task();
    task.mask = Mask::kNone;
    ASSERT_TRUE(device_->Attend({&task, 1}, {}).ok());
    EXPECT_EQ(WhatIsWrong(c, device_->info()), "") << c.shape.Describe();
  }
}

// The shapes of a layer with windows and softcaps, in a GPU's main kernel.
TEST_P(ScoreChangeTest, CapsInWindows) {
  std::mt19937_64 random(2);
  for (const int64_t dim : {64, 128}) {
    for (const Mask mask : {Mask::kNone, Mask::kDiagonal}) {
      AttentionCase c({.dtype = dim == 64 ? DataType::kFloat16 : DataType::kBFloat16,
                       .mask = mask,
                       .diagonal_shift = 20,
                       .left = 150,
                       .softcap = 30,
                       .heads = 2,
                       .query_rows = 140,
                       .key_rows = 400,
                       .head_dim = dim,
                       .value_dim = dim,
                       .scale = 1,
                       .gap_unit = 8},
                      random);
      const AttentionTask task = c.Task();
      ASSERT_TRUE(device_->Attend({&task, 1}, {}).ok());
      EXPECT_EQ(WhatIsWrong(c, device_->info()), "") << c.shape.Describe();
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
