// Attention at any magnitude, at the ends of float32, and on numbers that are not finite.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/device/devices_under_test.h"
#include "tests/unit/device/value_task.h"

namespace hilbert_ring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class EveryValueTest : public testing::TestWithParam<std::string> {
 protected:
  double WeightRounding(DataType dtype) const { return WeightRoundingOf(GetParam(), dtype); }

  std::unique_ptr<Device> device_ = DeviceFor(GetParam(), 2);
};

HILBERT_RING_FOR_ALL_DEVICES(EveryValueTest);

float Uniform(std::mt19937_64& random, float least, float greatest) {
  return std::uniform_real_distribution<float>(least, greatest)(random);
}

// A float32 dot product of n terms errs by n 2^-24 of the sum of their magnitudes at most. An
// average of values errs by a weight's share of them.
double Gamma(const ValueTask& task) { return static_cast<double>(task.head_dim) * 0x1p-24; }

void ExpectWithinTheValues(const ValueTask& task, const ValueResult& result,
                           double weight_rounding) {
  for (int64_t i = 0; i < task.queries; ++i) {
    const DefinedRow row = Expect(task, i);
    for (int64_t x = 0; x < task.value_dim; ++x) {
      const double most = std::max(std::abs(row.least[x]), std::abs(row.greatest[x]));
      const double rounding = (2e-6 + weight_rounding) * most + 0x1p-149;
      const float out = result.out[i * task.value_dim + x];
      ASSERT_GE(out, row.least[x] - rounding) << "row " << i << " dim " << x;
      ASSERT_LE(out, row.greatest[x] + rounding) << "row " << i << " dim " << x;
    }
  }
}

// Scores reach 2^31 and more, and scales are not powers of two: the greatest weight is 1.
TEST_P(EveryValueTest, LargeIntegersStayWithinTheValues) {
  std::mt19937_64 random(1);
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t dim : {24, 32, 48, 80, 128}) {
      ValueTask task(dtype, 140, 70, dim, 8);
      task.scale = 1 / std::sqrt(static_cast<float>(dim));
      for (float& x : task.q) x = static_cast<float>(random() % 256 * 256);
      for (float& x : task.k) x = static_cast<float>(random() % 256 * 256);
      for (float& x : task.v) x = static_cast<float>(1 + random() % 100);
      const ValueResult result = Attend(*device_, task);
      ExpectWithinTheValues(task, result, WeightRounding(dtype));
      for (int64_t i = 0; i < task.queries; ++i) {
        const DefinedRow row = Expect(task, i);
        EXPECT_NEAR(result.lse[i], row.lse, (Gamma(task) + 0x1p-22) * row.terms) << dim;
      }
    }
  }
}

// Random numbers of random magnitudes, with scores within float32.
ValueTask RandomMagnitudes(std::mt19937_64& random) {
  const auto magnitude = [&] { return std::pow(10.0f, Uniform(random, -30, 18)); };
  const DataType dtype = random() % 3 == 0 ? DataType::kBFloat16 : DataType::kFloat32;
  const bool few_rows = random() % 4 == 0;
  ValueTask task(dtype,
                 1 + static_cast<int64_t>(random() % (few_rows            ? 4
                                                      : random() % 4 == 0 ? 200
                                                                          : 40)),
                 1 + static_cast<int64_t>(random() % 150) + (few_rows ? 256 : 0),
                 8 * (1 + static_cast<int64_t>(random() % 32)),
                 8 * (1 + static_cast<int64_t>(random() % (random() % 4 == 0 ? 32 : 9))));
  const float of_q = magnitude(), of_k = magnitude(), of_v = magnitude();
  // Scores usually range from near 0 to thousands, otherwise without a limit.
  task.scale = random() % 4 == 0
                   ? 1.0f
                   : std::pow(10.0f, Uniform(random, -3, 3)) / std::max(1e-30f, of_q * of_k);
  task.scale = std::clamp(task.scale, 1e-30f, 1e30f);
  if (random() % 2 == 0) task.scale = -task.scale;
  task.causal = !few_rows && random() % 2 == 0;
  for (int64_t i = 0; i < task.queries; ++i) {
    for (int64_t x = 0; x < task.head_dim; ++x) task.SetQ(i, x, Uniform(random, -of_q, of_q));
  }
  for (int64_t j = 0; j < task.keys; ++j) {
    for (int64_t x = 0; x < task.head_dim; ++x) task.SetK(j, x, Uniform(random, -of_k, of_k));
    for (int64_t x = 0; x < task.value_dim; ++x) task.SetV(j, x, Uniform(random, -of_v, of_v));
  }
  return task;
}

double ErrorAllowed(const ValueTask& task, const DefinedRow& row, int64_t x, double weight) {
  // Weights err by their scores' errors, and every average by 2e-6 of its terms.
  const double of_scores = std::min(1.0, 2 * (Gamma(task) + 0x1p-22) * row.terms);
  const double spread = row.greatest[x] - row.least[x];
  return of_scores * spread + (2e-6 + 2 * weight) * row.magnitude[x] + 0x1p-120;
}

// merges: number of merged parts, each of which rounds a sum twice.
void ExpectAsDefined(const ValueTask& task, const ValueResult& result, double weight,
                     int64_t merges = 0) {
  const double merged = 0x1p-23 * static_cast<double>(merges);
  ExpectWithinTheValues(task, result, weight + merged);
  for (int64_t i = 0; i < task.queries; ++i) {
    const DefinedRow row = Expect(task, i);
    ASSERT_NEAR(result.lse[i], row.lse,
                (Gamma(task) + 0x1p-22) * row.terms + (1e-6 + merged) * (1 + std::abs(row.lse)))
        << "row " << i;
    for (int64_t x = 0; x < task.value_dim; ++x) {
      ASSERT_NEAR(result.out[i * task.value_dim + x], row.out[x],
                  ErrorAllowed(task, row, x, weight) + merged * row.magnitude[x])
          << "row " << i << " dim " << x;
    }
  }
}

TEST_P(EveryValueTest, AnyMagnitudeIsRight) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 100 && !HasFailure(); ++trial) {
    const ValueTask task = RandomMagnitudes(random);
    SCOPED_TRACE(trial);
    ExpectAsDefined(task, Attend(*device_, task), WeightRounding(task.dtype));
  }
}

// Keys in parts, like those of ranks and branches, give the same attention.
TEST_P(EveryValueTest, PartsOfAnyMagnitudeAreRight) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 50 && !HasFailure(); ++trial) {
    const ValueTask task = RandomMagnitudes(random);
    std::vector<int64_t> ends = {task.keys};
    for (uint64_t part = random() % 6; part > 0; --part) {
      ends.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(task.keys)));
    }
    std::ranges::sort(ends);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    SCOPED_TRACE(trial);
    ExpectAsDefined(task, AttendInParts(*device_, task, ends), WeightRounding(task.dtype),
                    std::ssize(ends));
  }
}

// Scores that are exact in float32, of every size: parts lose no more than the whole.
TEST_P(EveryValueTest, PartsAreAsGoodAsTheWhole) {
  std::mt19937_64 random(4);
  for (const int bits : {0, 6, 10, 14, 20}) {
    for (const int64_t parts : {2, 5, 7}) {
      ValueTask task(DataType::kFloat32, 24, 210, 16, 8);
      task.scale = 0.25f;
      for (float& x : task.q) x = static_cast<float>(random() % 5) - 2;
      for (float& x : task.k) x = (static_cast<float>(random() % 5) - 2) / 4;
      for (float& x : task.v) x = Uniform(random, -1, 1);
      for (int64_t i = 0; i < task.queries; ++i) task.q[i * 16] = std::ldexp(1.0f, bits);
      for (int64_t j = 0; j < task.keys; ++j) task.k[j * 16] = 1;
      std::vector<int64_t> ends;
      for (int64_t part = 1; part <= parts; ++part) ends.push_back(task.keys * part / parts);
      const ValueResult whole = Attend(*device_, task);
      const ValueResult merged = AttendInParts(*device_, task, ends);
      double of_whole = 0, of_merged = 0;
      for (int64_t i = 0; i < task.queries; ++i) {
        const DefinedRow row = Expect(task, i);
        EXPECT_NEAR(merged.lse[i], row.lse, 0x1p-22 * (4 + std::abs(row.lse)));
        for (int64_t x = 0; x < 8; ++x) {
          of_whole = std::max(of_whole, std::abs(whole.out[i * 8 + x] - row.out[x]));
          of_merged = std::max(of_merged, std::abs(merged.out[i * 8 + x] - row.out[x]));
        }
      }
      EXPECT_LE(of_whole, 1e-6) << bits;
      // The limit is twice the whole's error, and half of an output's last bit for each part.
      EXPECT_LE(of_merged, 2 * of_whole + 0x1p-25 * static_cast<double>(parts)) << bits;
    }
  }
}

// Sums of weight times value exceed float32 although their average does not.
TEST_P(EveryValueTest, AveragesOfTheGreatestNumbersAreFinite) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t dim : {8, 64, 128}) {
      for (const bool merged : {false, true}) {
        ValueTask task(dtype, 150, 100, dim, 8);
        for (int64_t j = 0; j < task.keys; ++j) {
          for (int64_t x = 0; x < 8; ++x) {
            const double either_sign = j % 2 == 0 ? 2e38 : -2e38;
            task.SetV(j, x, x == 0 ? 2e38 : x == 1 ? 3.38e38 : x == 2 ? either_sign : 1e-3);
          }
        }
        const ValueResult result =
            merged ? AttendInParts(*device_, task, {2, 64, 100}) : Attend(*device_, task);
        for (int64_t i = 0; i < task.queries; ++i) {
          EXPECT_NEAR(result.out[i * 8] / task.v[0], 1, 2e-6);
          EXPECT_NEAR(result.out[i * 8 + 1] / task.v[1], 1, 2e-6);
          EXPECT_NEAR(result.out[i * 8 + 2] / 2e38, 0, 2e-6);
          EXPECT_NEAR(result.out[i * 8 + 3], task.v[3], 2e-9);
          EXPECT_NEAR(result.lse[i], std::log(100.0), 1e-5);
        }
      }
    }
  }
}

// A score may overflow by its product with the scale.
TEST_P(EveryValueTest, ScoresThatOverflowFollowFloat32) {
  for (const bool by_scale : {false, true}) {
    for (const float sign : {1.0f, -1.0f}) {
      ValueTask task(DataType::kFloat32, 4, 5, 8, 8);
      task.scale = by_scale ? 1e25f : 1.0f;
      for (int64_t j = 0; j < 5; ++j) {
        for (int64_t x = 0; x < 8; ++x) task.SetV(j, x, j + 1);
        task.SetK(j, 0, 1e20);
      }
      task.SetQ(2, 0, sign * (by_scale ? 1e-2 : 1e25));
      for (const ValueResult& result :
           {Attend(*device_, task), AttendInParts(*device_, task, {2, 5})}) {
        for (const int64_t row : {0, 1, 3}) {
          EXPECT_FLOAT_EQ(result.out[row * 8], 3) << by_scale << sign;
          EXPECT_FLOAT_EQ(result.lse[row], std::log(5.0f));
        }
        if (sign > 0) {
          EXPECT_TRUE(std::isnan(result.out[2 * 8]));
          EXPECT_TRUE(std::isnan(result.lse[2]));
        } else {
          EXPECT_EQ(result.out[2 * 8], 0);
          EXPECT_EQ(result.lse[2], -kInfinity);
        }
      }
    }
  }
}

bool Alike(double found, double expected, double allowed) {
  if (std::isnan(expected)) return std::isnan(found);
  if (std::isinf(expected)) return found == expected;
  return std::abs(found - expected) <= allowed;
}

// NaN and infinities anywhere: each row follows the definition over the keys that it sees.
TEST_P(EveryValueTest, WhatIsNotFiniteReachesTheRowsThatSeeIt) {
  std::mt19937_64 random(5);
  constexpr float kOdd[] = {kNan, kInfinity, -kInfinity};
  constexpr int64_t kDims[] = {8, 16, 24, 40, 64, 104, 128, 256};  // covers each of a GPU's kernels
  for (int trial = 0; trial < 90 && !HasFailure(); ++trial) {
    const auto dtype = static_cast<DataType>(trial % 3);
    const bool few_rows = random() % 4 == 0;
    ValueTask task(dtype, 1 + static_cast<int64_t>(random() % (few_rows ? 4 : 150)),
                   1 + static_cast<int64_t>(random() % 150) + (few_rows ? 256 : 0),
                   kDims[random() % std::size(kDims)], kDims[random() % std::size(kDims)]);
    task.scale = trial % 7 == 0 ? -0.3f : trial % 7 == 1 ? 0.0f : 0.3f;
    task.causal = !few_rows && random() % 3 != 0;
    for (int64_t i = 0; i < task.queries; ++i) {
      for (int64_t x = 0; x < task.head_dim; ++x) task.SetQ(i, x, Uniform(random, -1, 1));
    }
    for (int64_t j = 0; j < task.keys; ++j) {
      for (int64_t x = 0; x < task.head_dim; ++x) task.SetK(j, x, Uniform(random, -1, 1));
      for (int64_t x = 0; x < task.value_dim; ++x) task.SetV(j, x, Uniform(random, -1, 1));
    }
    for (uint64_t count = 1 + random() % 3; count > 0; --count) {
      const float odd = kOdd[random() % 3];
      switch (random() % 3) {
        case 0:
          task.q[random() % task.q.size()] = odd;
          break;
        case 1:
          task.k[random() % task.k.size()] = odd;
          break;
        default:
          task.v[random() % task.v.size()] = odd;
      }
    }
    std::vector<int64_t> ends = {static_cast<int64_t>(random() % task.keys), task.keys};
    const std::vector<ValueResult> results = {Attend(*device_, task),
                                              AttendInParts(*device_, task, ends)};
    for (const ValueResult& result : results) {
      const bool in_parts = &result == &results[1];
      for (int64_t i = 0; i < task.queries; ++i) {
        const DefinedRow row = Expect(task, i);
        if (in_parts && row.sees_weightless_odd_value) continue;  // a part without weight loses it
        ASSERT_TRUE(Alike(result.lse[i], row.lse, 1e-5))
            << "trial " << trial << " row " << i << ": " << result.lse[i] << ", " << row.lse;
        for (int64_t x = 0; x < task.value_dim; ++x) {
          const double out = result.out[i * task.value_dim + x];
          ASSERT_TRUE(Alike(out, row.out[x], 1e-5 + 2 * WeightRounding(dtype)))
              << "trial " << trial << " row " << i << " dim " << x << ": " << out << ", "
              << row.out[x];
        }
      }
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
