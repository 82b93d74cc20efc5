// Attention at the ends of float32, of numbers, scores and scales, on every kernel of the machine.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/device/attention_at_its_ends.h"

namespace hilbert_ring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGreatest = std::numeric_limits<float>::max();
constexpr DataType kWideTypes[] = {DataType::kFloat32, DataType::kBFloat16};

// Queries and keys of one number each: scores are products of these.
struct Products {
  DataType dtype = DataType::kFloat32;
  std::vector<double> queries, keys;
  float scale = 1.0f;
};

using SetValues = std::function<void(AttentionCase&)>;

void Number(AttentionCase& c) {
  for (int64_t j = 0; j < c.shape.key_rows; ++j) {
    for (int64_t x = 0; x < 8; ++x) c.v.Set(0, j, 0, x, static_cast<float>(j * 8 + x % 3) - 20);
  }
}

class ValueLimitsTest : public AttentionAtItsEnds {
 protected:
  // Of one task that writes, and of parts of the keys that are merged.
  void ForWholeAndParts(const Products& products, const SetValues& values,
                        const std::function<void(const AttentionCase&)>& check) {
    for (const int64_t parts : {0, 1, 2, 4}) {
      std::mt19937_64 random(parts);
      AttentionCase c({.dtype = products.dtype,
                       .result = parts == 0 ? Result::kWrite : Result::kMerge,
                       .query_rows = std::ssize(products.queries),
                       .key_rows = std::ssize(products.keys),
                       .scale = products.scale,
                       .gap_unit = 8},
                      random);
      if (parts > 0) c.ClearState();
      for (const auto& [rows, numbers] :
           {std::pair{&c.q, &products.queries}, std::pair{&c.k, &products.keys}}) {
        rows->Fill(0.0f);
        for (int64_t i = 0; i < std::ssize(*numbers); ++i) {
          rows->Set(0, i, 0, 0, static_cast<float>((*numbers)[i]));
        }
      }
      values(c);
      SCOPED_TRACE(absl::StrCat(c.shape.Describe(), ", parts: ", parts));
      Attend(c, std::max<int64_t>(1, parts));
      check(c);
    }
  }

  // Every row within the rounding of its weights, and `lost` of absolute error.
  void ExpectDefined(const Products& products, const SetValues& values = Number, double lost = 0) {
    const double relative = 4e-6 + 2 * WeightRoundingOf(GetParam(), products.dtype);
    ForWholeAndParts(products, values, [&](const AttentionCase& c) {
      ForRows(c, [&](int64_t b, int64_t i, int64_t h, const DefinedRow& row) {
        ExpectAlike(c.Lse(b, i, h), row.lse, 2e-6 * (1 + std::abs(row.lse)));
        for (int64_t x = 0; x < 8; ++x) {
          const double most = std::isnan(row.out[x]) ? 0 : row.magnitude[x];
          ExpectAlike(c.out.Get(b, i, h, x), row.out[x], relative * most + lost);
        }
      });
    });
  }

  static void ExpectAlike(double found, double expected, double allowed) {
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << found;
    } else if (std::isinf(expected)) {
      EXPECT_EQ(found, expected);
    } else {
      EXPECT_NEAR(found, expected, allowed);
    }
  }
};

HILBERT_RING_FOR_ALL_DEVICES(ValueLimitsTest);

// Infinite numbers of queries and keys make scores of either sign: +infinity spoils a row,
// -infinity leaves the key without weight, 0 times it is NaN.
TEST_P(ValueLimitsTest, InfiniteQueriesAndKeysKeepTheirSigns) {
  for (const DataType dtype : kTypes) {
    const double tiny = dtype == DataType::kFloat16 ? 0x1p-24 : 1e-40;
    for (const double odd : {double{kInfinity}, -double{kInfinity}}) {
      for (const float scale : {1.0f, -0.5f}) {
        for (const double of_keys : {1.0, tiny}) {
          Products products{.dtype = dtype,
                            .queries = {odd, 1, -1, 0.5, -odd},
                            .keys = {of_keys, of_keys, 2 * of_keys, of_keys, of_keys, 3 * of_keys},
                            .scale = scale};
          ExpectDefined(products);
          products.keys[3] = -of_keys;  // of two signs
          ExpectDefined(products);
          products.queries = {1, -1, of_keys, -of_keys, 0.5};
          products.keys = {1, -1, odd, 2, 0.5, 1};
          ExpectDefined(products);
        }
      }
    }
  }
}

// Of a score that is finite an infinite value is felt, however small its weight is.
TEST_P(ValueLimitsTest, AnInfiniteValueOfAnyFiniteScoreKeepsItsSign) {
  for (const DataType dtype : kTypes) {
    for (const double behind : {-1.0, -80.0, -100.0, -700.0, -60'000.0}) {
      for (const float sign : {1.0f, -1.0f}) {
        const auto spoil = [sign](AttentionCase& c) {
          Number(c);
          c.v.Set(0, 2, 0, 1, sign * kInfinity);
          c.v.Set(0, 5, 0, 2, sign * kInfinity);
          c.v.Set(0, 2, 0, 3, sign * kInfinity);
          c.v.Set(0, 5, 0, 3, -sign * kInfinity);
          c.v.Set(0, 5, 0, 4, kNan);
        };
        ForWholeAndParts(
            {.dtype = dtype, .queries = {1, 1, 1}, .keys = {0, 0, behind, 0, 0, behind, 0}}, spoil,
            [&](const AttentionCase& c) {
              for (int64_t i = 0; i < 3; ++i) {
                const auto out = [&](int64_t x) { return c.out.Get(0, i, 0, x); };
                EXPECT_EQ(out(1), sign * kInfinity);
                EXPECT_EQ(out(2), sign * kInfinity);
                EXPECT_TRUE(std::isnan(out(3)) && std::isnan(out(4))) << out(3) << " " << out(4);
                EXPECT_TRUE(std::isfinite(out(0)) && std::isfinite(c.Lse(0, i, 0))) << out(0);
              }
            });
      }
    }
  }
}

// Parts of which the scores are all -infinity, of which some are NaN, and such as have values that
// are not finite, in every order.
TEST_P(ValueLimitsTest, PartsThatAreNotFiniteMerge) {
  for (const DataType dtype : kTypes) {
    const auto keys_but = [](int64_t only, double all, double odd) {
      std::vector<double> keys(12, all);
      keys[only] = odd;
      return keys;
    };
    ExpectDefined({.dtype = dtype, .queries = {1, 2}, .keys = keys_but(0, -kInfinity, -kInfinity)});
    for (const int64_t only : {0, 5, 11}) {
      for (const double odd : {3.0, double{kNan}}) {
        ExpectDefined({.dtype = dtype, .queries = {1, 2}, .keys = keys_but(only, -kInfinity, odd)});
      }
      ExpectDefined({.dtype = dtype, .queries = {1, -2}, .keys = keys_but(only, 2, kInfinity)});
      ExpectDefined({.dtype = dtype, .queries = {1, 2}, .keys = keys_but(0, 0.5, 0.5)},
                    [only](AttentionCase& c) {
                      Number(c);
                      c.v.Set(0, only, 0, 1, kInfinity);
                      c.v.Set(0, only, 0, 2, -kInfinity);
                      c.v.Set(0, only, 0, 3, kNan);
                      c.v.Set(0, (only + 6) % 12, 0, 2, kInfinity);
                    });
    }
  }
}

// Scales from the least number of float32 to the greatest.
TEST_P(ValueLimitsTest, ScalesAtTheEndsOfFloat32) {
  for (const DataType dtype : kWideTypes) {
    for (const float scale :
         {1e-45f, 3e-42f, 1e-38f, 0x1p-126f, 1.5e-38f, 0x1p-119f, 0x1p-118f, 3e-36f, 1e-30f, 1e30f,
          0x1p127f, 0x1.62e42ep+127f, 0x1.62e43p+127f, 2.4e38f, 3e38f, kGreatest}) {
      // Products up to the end of float32, or to 20 times the scale's inverse, in exact steps:
      // powers of two times small integers.
      const int exponent = std::ilogb(std::min(3e38, 20.0 / scale)) - 4;
      const int of_q = std::max(-120, exponent / 2);
      Products products{.dtype = dtype};
      for (int n = -15; n <= 15; ++n) products.keys.push_back(std::ldexp(n, exponent - of_q));
      for (const double n : {1.0, -1.0, 0.5}) products.queries.push_back(std::ldexp(n, of_q));
      for (const float sign : {1.0f, -1.0f}) {
        products.scale = sign * scale;
        ExpectDefined(products);
      }
    }
  }
}

// Finite scores right at the end, and their differences beyond it.
TEST_P(ValueLimitsTest, ScoresAtTheBorderOfOverflow) {
  for (const DataType dtype : kWideTypes) {
    for (const float scale : {1.0f, 0x1p-100f, 0x1p-122f, 1e-38f, 0x1p-128f}) {
      for (const float sign : {1.0f, -1.0f}) {
        ExpectDefined({.dtype = dtype,
                       .queries = {0x1p64, -0x1p64, 0x1p63},
                       .keys = {0x1.fep63, -0x1.fep63, 0, 0x1.fcp63, -0x1p63, 0x1.fep62, 0x1p40,
                                -0x1.fep63, 0x1p63},
                       .scale = sign * scale});
      }
    }
  }
}

// The products of subnormal numbers with great ones are ordinary scores.
TEST_P(ValueLimitsTest, SubnormalQueriesAndKeysCount) {
  for (const DataType dtype : kWideTypes) {
    for (const auto& [of_q, of_k] : {std::pair{0x1p-130, 0x1p120},
                                     std::pair{0x1p120, 0x1p-130},
                                     {0x1p-133, 0x1p127},
                                     {0x1p127, 0x1p-133},
                                     {0x1p-128, 0x1p100},
                                     {0x1p-126, 0x1p126}}) {
      Products products{.dtype = dtype,
                        .queries = {of_q, 3 * of_q, -2 * of_q},
                        .scale = static_cast<float>(std::min(3e38, 2 / (of_q * of_k)))};
      for (int n = 0; n < 20; ++n) {
        products.keys.push_back((n % 7 == 3 ? 1 : 0.5) * (n % 2 * 2 - 1) * of_k);
      }
      ExpectDefined(products);
    }
  }
}

}  // namespace
}  // namespace hilbert_ring
