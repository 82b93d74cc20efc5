#include "engine/model/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/spec/numbers.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

class Kernels : public ::testing::TestWithParam<const RowKernels*> {};

std::vector<float> Values(int64_t count, uint64_t seed, float mean = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Dims are multiples of vectors or not. A mean far from 0 exposes a variance that is computed as
// the difference of two squares.
TEST_P(Kernels, NormIsThatOfFloat64) {
  for (const int64_t dim : {1, 7, 8, 17, 63, 64, 65, 100, 768, 3072}) {
    for (const float mean : {0.0f, 100.0f}) {
      const std::vector<float> from = Values(dim, dim, mean);
      const std::vector<float> weight = Values(dim, dim + 1), bias = Values(dim, dim + 2);
      std::vector<float> to(dim);
      GetParam()->norm(from.data(),
                       {.weight = weight.data(), .bias = bias.data(), .epsilon = 1e-5f}, dim,
                       to.data());
      double average = 0, variance = 0;
      for (const float x : from) average += x / static_cast<double>(dim);
      for (const float x : from) {
        variance += (x - average) * (x - average) / static_cast<double>(dim);
      }
      for (int64_t i = 0; i < dim; ++i) {
        const double expected =
            (from[i] - average) / std::sqrt(variance + 1e-5) * weight[i] + bias[i];
        EXPECT_NEAR(to[i], expected, (mean == 0 ? 2e-6 : 1e-4) * (1 + std::abs(expected)))
            << dim << " at " << i;
      }
    }
  }
}

TEST_P(Kernels, NormOfRowsWhoseSquaresOverflow) {
  for (const float size : {1e19f, 1e30f, 3e38f}) {
    const std::vector<float> unit = Values(100, 7), weight = Values(100, 8), bias = Values(100, 9);
    std::vector<float> row;
    row.reserve(unit.size());
    for (const float x : unit) row.push_back(std::clamp(x, -1.0f, 1.0f) * size);
    const std::vector<float> from = row;
    GetParam()->norm(row.data(), {.weight = weight.data(), .bias = bias.data(), .epsilon = 1e-5f},
                     100, row.data());
    double average = 0, variance = 0;
    for (const float x : from) average += x / 100.0;
    for (const float x : from) variance += (x - average) * (x - average) / 100.0;
    for (size_t i = 0; i < row.size(); ++i) {
      const double expected = (from[i] - average) / std::sqrt(variance) * weight[i] + bias[i];
      EXPECT_NEAR(row[i], expected, 1e-5 * (1 + std::abs(expected))) << size << " at " << i;
    }
  }
  std::vector<float> row(20, 1), weight(20, 1), bias(20, 0);
  row[3] = std::numeric_limits<float>::infinity();
  GetParam()->norm(row.data(), {.weight = weight.data(), .bias = bias.data(), .epsilon = 1e-5f}, 20,
                   row.data());
  EXPECT_TRUE(std::isnan(row[3]));
}

TEST_P(Kernels, GeluIsTheExactOne) {
  std::vector<float> row;
  for (double x = -12; x <= 12; x += 0.0013) row.push_back(static_cast<float>(x));
  for (const float x : {0.0f, -0.0f, 1e4f, -1e4f, 1e-30f}) row.push_back(x);
  const std::vector<float> from = row;
  GetParam()->gelu(row.data(), static_cast<int64_t>(row.size()));
  for (size_t i = 0; i < row.size(); ++i) {
    const double x = from[i], expected = 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    EXPECT_NEAR(row[i], expected, 1e-6 * (1 + std::abs(expected))) << x;
  }
  float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  GetParam()->gelu(odd, 2);
  EXPECT_TRUE(std::isnan(odd[0]));
  EXPECT_EQ(odd[1], std::numeric_limits<float>::infinity());
}

INSTANTIATE_TEST_SUITE_P(Targets, Kernels,
                         ::testing::Values(&BestRowKernels(), &BaselineRowKernels()),
                         [](const auto& info) { return info.index == 0 ? "Best" : "Baseline"; });

}  // namespace
}  // namespace hilbert_ring
