// Attention at float32's limits of numbers, scores and scales, on every kernel of the machine.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/device/devices_under_test.h"
#include "tests/unit/device/value_task.h"

namespace hilbert_ring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGreatest = std::numeric_limits<float>::max();

class ValueLimitsTest : public testing::TestWithParam<std::string> {
 protected:
  double WeightRounding(DataType dtype) const { return WeightRoundingOf(GetParam(), dtype); }

  // Results of the whole task, and of merged parts.
  std::vector<ValueResult> WholeAndInParts(const ValueTask& task) {
    const int64_t n = task.keys;
    return {Attend(*device_, task), AttendInParts(*device_, task, {n}),
            AttendInParts(*device_, task, {n / 2, n}),
            AttendInParts(*device_, task, {1, n / 3, n - 1, n})};
  }

  // Expects every row within the rounding of its weights, plus `lost` of absolute error.
  void ExpectDefined(const ValueTask& task, double lost = 0) {
    const std::vector<ValueResult> results = WholeAndInParts(task);
    for (size_t which = 0; which < results.size(); ++which) {
      for (int64_t i = 0; i < task.queries; ++i) {
        SCOPED_TRACE(absl::StrCat("row ", i, " of result ", which));
        const DefinedRow row = Expect(task, i);
        ExpectAlike(results[which].lse[i], row.lse, 2e-6 * (1 + std::abs(row.lse)));
        for (int64_t x = 0; x < task.value_dim; ++x) {
          const double most = std::isnan(row.out[x]) ? 0 : row.magnitude[x];
          ExpectAlike(results[which].out[i * task.value_dim + x], row.out[x],
                      (4e-6 + 2 * WeightRounding(task.dtype)) * most + lost);
        }
        if (HasFailure()) return;
      }
    }
  }

  static void ExpectAlike(float found, double expected, double allowed) {
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << found;
    } else if (std::isinf(expected)) {
      EXPECT_EQ(found, expected);
    } else {
      EXPECT_NEAR(found, expected, allowed);
    }
  }

  std::unique_ptr<Device> device_ = DeviceFor(GetParam(), 2);
};

HILBERT_RING_FOR_ALL_DEVICES(ValueLimitsTest);

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

// Random numbers up to 1.
ValueTask RandomTask(DataType dtype, int64_t rows, int64_t head_dim, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> number(-1, 1);
  ValueTask task(dtype, rows, rows, head_dim, 8);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t x = 0; x < head_dim; ++x) task.SetQ(i, x, number(random));
    for (int64_t x = 0; x < head_dim; ++x) task.SetK(i, x, number(random));
    for (int64_t x = 0; x < 8; ++x) task.SetV(i, x, number(random));
  }
  return task;
}

// Queries and keys of one number each: scores are their products.
ValueTask ProductTask(DataType dtype, const std::vector<double>& queries,
                      const std::vector<double>& keys) {
  ValueTask task(dtype, static_cast<int64_t>(queries.size()), static_cast<int64_t>(keys.size()), 8,
                 8);
  for (int64_t i = 0; i < task.queries; ++i) task.SetQ(i, 0, queries[i]);
  for (int64_t j = 0; j < task.keys; ++j) {
    task.SetK(j, 0, keys[j]);
    for (int64_t x = 0; x < 8; ++x) task.SetV(j, x, static_cast<double>(j * 8 + x % 3) - 20);
  }
  return task;
}

// Infinite numbers of queries and keys make scores of either sign. +infinity spoils a row,
// -infinity gives the key no weight, and 0 times infinity is NaN.
TEST_P(ValueLimitsTest, InfiniteQueriesAndKeysKeepTheirSigns) {
  for (const DataType dtype : kTypes) {
    const double tiny = dtype == DataType::kFloat16 ? 0x1p-24 : 1e-40;
    for (const double odd : {double{kInfinity}, -double{kInfinity}}) {
      for (const float scale : {1.0f, -0.5f}) {
        for (const double of_keys : {1.0, tiny}) {
          SCOPED_TRACE(absl::StrCat(static_cast<int>(dtype), " ", odd, " ", scale, " ", of_keys));
          ValueTask task =
              ProductTask(dtype, {odd, 1, -1, 0.5, -odd},
                          {of_keys, of_keys, 2 * of_keys, of_keys, of_keys, 3 * of_keys});
          task.scale = scale;
          ExpectDefined(task);
          // Keys of two signs.
          task.SetK(3, 0, -of_keys);
          ExpectDefined(task);
          // An infinite key.
          task = ProductTask(dtype, {1, -1, of_keys, -of_keys, 0.5}, {1, -1, odd, 2, 0.5, 1});
          task.scale = scale;
          ExpectDefined(task);
        }
      }
    }
  }
}

// A finite score passes on an infinite value at any weight.
TEST_P(ValueLimitsTest, AnInfiniteValueOfAnyFiniteScoreKeepsItsSign) {
  for (const DataType dtype : kTypes) {
    for (const double behind : {-1.0, -80.0, -100.0, -700.0, -60'000.0}) {
      for (const float sign : {1.0f, -1.0f}) {
        ValueTask task = ProductTask(dtype, {1, 1, 1}, {0, 0, behind, 0, 0, behind, 0});
        task.SetV(2, 1, sign * kInfinity);
        task.SetV(5, 2, sign * kInfinity);
        task.SetV(2, 3, sign * kInfinity);
        task.SetV(5, 3, -sign * kInfinity);
        task.SetV(5, 4, kNan);
        for (const ValueResult& result : WholeAndInParts(task)) {
          for (int64_t i = 0; i < 3; ++i) {
            SCOPED_TRACE(absl::StrCat(behind, " row ", i));
            const float* out = result.out.data() + i * 8;
            EXPECT_EQ(out[1], sign * kInfinity);
            EXPECT_EQ(out[2], sign * kInfinity);
            EXPECT_TRUE(std::isnan(out[3])) << out[3];
            EXPECT_TRUE(std::isnan(out[4])) << out[4];
            EXPECT_TRUE(std::isfinite(out[0])) << out[0];
            EXPECT_TRUE(std::isfinite(result.lse[i])) << result.lse[i];
          }
        }
      }
    }
  }
}

// Merges parts of scores -infinity, of NaN scores and of values not finite, in every order.
TEST_P(ValueLimitsTest, PartsThatAreNotFiniteMerge) {
  const double odd = kInfinity;
  std::vector<double> keys(12, -odd);
  for (const DataType dtype : kTypes) {
    ValueTask task = ProductTask(dtype, {1, 2}, keys);
    ExpectDefined(task);  // no weight at all
    for (const int64_t only : {0, 5, 11}) {
      keys.assign(12, -odd);
      keys[only] = 3;
      ExpectDefined(ProductTask(dtype, {1, 2}, keys));
      keys[only] = kNan;
      ExpectDefined(ProductTask(dtype, {1, 2}, keys));
      keys.assign(12, 2);
      keys[only] = odd;
      ExpectDefined(ProductTask(dtype, {1, -2}, keys));
      task = ProductTask(dtype, {1, 2}, std::vector<double>(12, 0.5));
      task.SetV(only, 1, odd);
      task.SetV(only, 2, -odd);
      task.SetV(only, 3, kNan);
      task.SetV((only + 6) % 12, 2, odd);
      ExpectDefined(task);
    }
  }
}

// Scales from float32's least number to its greatest.
TEST_P(ValueLimitsTest, ScalesAtTheEndsOfFloat32) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const float scale :
         {1e-45f, 3e-42f, 1e-38f, 0x1p-126f, 1.5e-38f, 0x1p-119f, 0x1p-118f, 3e-36f, 1e-30f, 1e30f,
          0x1p127f, 0x1.62e42ep+127f, 0x1.62e43p+127f, 2.4e38f, 3e38f, kGreatest}) {
      for (const float sign : {1.0f, -1.0f}) {
        // Products reach the end of float32, or 20 times the scale's inverse.
        const double most = std::min(3e38, 20.0 / scale);
        std::vector<double> keys, queries;
        // Exact steps: powers of two times small integers.
        const int exponent = std::ilogb(most) - 4;
        const int of_q = std::max(-120, exponent / 2), of_k = exponent - of_q;
        for (int n = -15; n <= 15; ++n) keys.push_back(std::ldexp(n, of_k));
        for (const double n : {1.0, -1.0, 0.5}) queries.push_back(n * std::ldexp(1.0, of_q));
        ValueTask task = ProductTask(dtype, queries, keys);
        task.scale = sign * scale;
        SCOPED_TRACE(absl::StrCat(static_cast<int>(dtype), " scale ", task.scale));
        ExpectDefined(task);
      }
    }
  }
}

// Finite scores at the limit, with differences beyond it.
TEST_P(ValueLimitsTest, ScoresAtTheBorderOfOverflow) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const float scale : {1.0f, 0x1p-100f, 0x1p-122f, 1e-38f, 0x1p-128f}) {
      const ValueTask made = ProductTask(
          dtype, {0x1p64, -0x1p64, 0x1p63},
          {0x1.fep63, -0x1.fep63, 0, 0x1.fcp63, -0x1p63, 0x1.fep62, 0x1p40, -0x1.fep63, 0x1p63});
      for (const float sign : {1.0f, -1.0f}) {
        ValueTask task = made;
        task.scale = sign * scale;
        SCOPED_TRACE(absl::StrCat(static_cast<int>(dtype), " scale ", task.scale));
        ExpectDefined(task);
      }
    }
  }
}

// Sums that overflow do not change sums of the least numbers beside them.
TEST_P(ValueLimitsTest, LeastValuesBesideSumsThatOverflow) {
  for (const int64_t rows : {4, 60, 300}) {
    for (const bool overflows : {false, true}) {
      ValueTask task = RandomTask(DataType::kFloat32, rows, 16, 1);
      for (int64_t j = 0; j < rows; ++j) {
        task.SetV(j, 0, overflows ? 2e38 : 1.0);
        task.SetV(j, 1, static_cast<double>(1 + j % 7) * 1e-38);
        task.SetV(j, 2, static_cast<double>(j % 5) * 0x1p-149);
        task.SetV(j, 3, 0x1p-126);
      }
      // Each term may lose half of the last bit.
      SCOPED_TRACE(rows);
      ExpectDefined(task, static_cast<double>(std::min<int64_t>(rows, 64)) * 0x1p-149);
    }
  }
}

// Least values of 16-bit types: instructions may treat bfloat16's subnormal values as 0.
TEST_P(ValueLimitsTest, SubnormalValues) {
  for (const DataType dtype : kTypes) {
    ValueTask task = RandomTask(dtype, 70, 16, 2);
    const double least = dtype == DataType::kFloat16 ? 0x1p-24 : 0x1p-133;
    for (int64_t j = 0; j < 70; ++j) {
      for (int64_t x = 0; x < 8; ++x) task.SetV(j, x, static_cast<double>(j % (1 + x)) * least);
    }
    ExpectDefined(task, dtype == DataType::kFloat32    ? 64 * 0x1p-149
                        : dtype == DataType::kBFloat16 ? 0x1p-126
                                                       : 0);
  }
}

// A single row's sums overflow in a tile: rows of other threads stay accurate.
TEST_P(ValueLimitsTest, SumsOfOneRowAloneThatOverflow) {
  for (const int64_t dim : {64, 128}) {
    for (const int64_t odd : {5, 40, 75, 110, 170}) {
      ValueTask task = RandomTask(DataType::kBFloat16, 180, dim, odd);
      std::ranges::fill(task.q, 0.0f);
      std::ranges::fill(task.k, 0.0f);
      // Two keys have great values. Only the odd row, to which all keys are equal, sees them.
      for (int64_t i = 0; i < 180; ++i) task.SetQ(i, 0, i == odd ? 0 : 32);
      for (int64_t j = 0; j < 2; ++j) {
        task.SetK(j, 0, -32);
        for (int64_t x = 0; x < 8; ++x) task.SetV(j, x, 3e38);
      }
      SCOPED_TRACE(absl::StrCat("dim ", dim, " row ", odd));
      ExpectDefined(task);
    }
  }
}

// A weight below float32's normal numbers is exact or 0.
TEST_P(ValueLimitsTest, SubnormalWeights) {
  for (const double behind : {-86.0, -88.0, -92.0, -100.0, -104.0, -110.0, -1e4, -1e30}) {
    const ValueTask made = ProductTask(DataType::kFloat32, {1, 1}, {0, behind, 0, 0});
    ValueTask task = made;
    for (int64_t x = 0; x < 8; ++x) {
      for (const int64_t j : {0, 2, 3}) task.SetV(j, x, 0);
      task.SetV(1, x, 3e38);
    }
    for (const ValueResult& result : WholeAndInParts(task)) {
      const double exact = std::exp(behind) * 1e38;
      EXPECT_LE(result.out[0], exact * (behind < -87 ? 1.1 : 1.00001)) << behind;
      EXPECT_GE(result.out[0], behind < -87 ? 0 : exact * 0.99999) << behind;
      EXPECT_NEAR(result.lse[0], std::log(3.0), 1e-6);
    }
  }
}

// Products of subnormal numbers with great numbers are ordinary scores.
TEST_P(ValueLimitsTest, SubnormalQueriesAndKeysCount) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const auto& [of_q, of_k] : {std::pair{0x1p-130, 0x1p120},
                                     std::pair{0x1p120, 0x1p-130},
                                     {0x1p-133, 0x1p127},
                                     {0x1p127, 0x1p-133},
                                     {0x1p-128, 0x1p100},
                                     {0x1p-126, 0x1p126}}) {
      std::vector<double> queries, keys;
      for (const int n : {1, 3, -2}) queries.push_back(n * of_q);
      for (int n = 0; n < 20; ++n) keys.push_back((n % 7 == 3 ? 1 : 0.5) * (n % 2 * 2 - 1) * of_k);
      ValueTask task = ProductTask(dtype, queries, keys);
      task.scale = static_cast<float>(std::min(3e38, 2 / (of_q * of_k)));
      SCOPED_TRACE(absl::StrCat(static_cast<int>(dtype), " ", of_q, " ", of_k));
      ExpectDefined(task);
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
