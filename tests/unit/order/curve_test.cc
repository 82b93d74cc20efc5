#include "engine/order/curve.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/unit/order/naive_order.h"

namespace hilbert_ring {
namespace {

class CurveTest : public testing::TestWithParam<Curve> {};

INSTANTIATE_TEST_SUITE_P(Curves, CurveTest, testing::Values(Curve::kHilbert, Curve::kMorton),
                         [](const auto& info) {
                           return info.param == Curve::kHilbert ? "Hilbert" : "Morton";
                         });

void ExpectKey(Curve curve, const std::vector<int64_t>& cell, int bits) {
  uint64_t key = 0;
  CurveKeys(curve, static_cast<int>(cell.size()), bits, cell, {&key, 1});
  ASSERT_EQ(key, NaiveKey(curve, {cell.begin(), cell.end()}, bits))
      << testing::PrintToString(cell) << " of " << bits << " bits";
}

TEST_P(CurveTest, EveryCellOfSmallSquaresAndCubes) {
  for (int bits = 1; bits <= 7; ++bits) {
    const int64_t side = int64_t{1} << bits;
    for (int64_t y = 0; y < side; ++y) {
      for (int64_t x = 0; x < side; ++x) {
        ASSERT_NO_FATAL_FAILURE(ExpectKey(GetParam(), {x, y}, bits));
        for (int64_t z = 0; bits <= 5 && z < side; ++z) {
          ASSERT_NO_FATAL_FAILURE(ExpectKey(GetParam(), {x, y, z}, bits));
        }
      }
    }
  }
}

TEST_P(CurveTest, RandomCellsOfLargeSquaresAndCubes) {
  std::mt19937_64 random(1);
  for (int bits = 6; bits <= 32; ++bits) {
    const int64_t last = (int64_t{1} << bits) - 1;
    for (const int64_t x : {int64_t{0}, last}) {
      for (const int64_t y : {int64_t{0}, last}) {
        ASSERT_NO_FATAL_FAILURE(ExpectKey(GetParam(), {x, y}, bits));
        if (bits > 21) continue;
        ASSERT_NO_FATAL_FAILURE(ExpectKey(GetParam(), {x, y, last}, bits));
      }
    }
    for (int i = 0; i < 1000; ++i) {
      const auto coordinate = [&] { return static_cast<int64_t>(random()) & last; };
      const int64_t x = coordinate(), y = coordinate(), z = coordinate();
      ASSERT_NO_FATAL_FAILURE(ExpectKey(GetParam(), {x, y}, bits));
      if (bits > 21) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectKey(GetParam(), {x, y, z}, bits));
    }
  }
}

TEST_P(CurveTest, KeysOfManyCellsAreKeysOfEach) {
  std::mt19937_64 random(3);
  for (const int axes : {2, 3}) {
    const int bits = axes == 2 ? 30 : 19;
    std::vector<int64_t> coords(1000 * axes);
    for (int64_t& c : coords) c = static_cast<int64_t>(random() & ((uint64_t{1} << bits) - 1));
    std::vector<uint64_t> keys(1000);
    CurveKeys(GetParam(), axes, bits, coords, keys);
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<uint64_t> cell(coords.begin() + i * axes, coords.begin() + (i + 1) * axes);
      ASSERT_EQ(keys[i], NaiveKey(GetParam(), cell, bits)) << i;
    }
    CurveKeys(GetParam(), axes, bits, {}, {});
  }
}

}  // namespace
}  // namespace hilbert_ring
