#include "engine/model/files/grid_positions.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

constexpr GridPositions kGrid{.tile_size = 256, .grid = 1000};

TEST(GridPositions, CoordinatesOfTheGridAreFine) {
  const std::vector<double> coords = {0, 0, 255999, 255999.75, -0.0, 12.5};
  EXPECT_TRUE(CheckCoordinates(kGrid, coords, 0).ok());
}

TEST(GridPositions, WhatIsOutsideIsRefusedWithRowValueAndRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {-0.5, 256000.0, nan, infinity, -infinity}) {
    for (const size_t axis : {0, 1}) {
      std::vector<double> coords = {1, 2, 3, 4, 5, 6};
      coords[2 + axis] = wrong;
      const absl::Status status = CheckCoordinates(kGrid, coords, 100);
      EXPECT_TRUE(absl::IsOutOfRange(status)) << wrong;
      EXPECT_THAT(std::string(status.message()), HasSubstr("coords[101] is ["));
      EXPECT_THAT(std::string(status.message()), HasSubstr("must be in [0, 256000)"));
    }
  }
}

// By the formula, element by element, at cells where float32 angles would be off by 1e-5.
TEST(GridPositions, TheFirstHalfEncodesTheSecondCoordinate) {
  constexpr int64_t kDim = 48;
  const GridEmbedding embedding(kGrid, kDim);
  std::vector<float> row(kDim, 2.0f);
  embedding.AddTo(999.5 * 256, 123.25 * 256, row);
  for (int64_t x = 0; x < kDim; ++x) {
    const double cell = x < kDim / 2 ? 123 : 999;
    const int64_t of_half = x % (kDim / 2), quarter = kDim / 4;
    const double angle = cell / std::pow(10000.0, static_cast<double>(of_half % quarter) / quarter);
    const double expected = of_half < quarter ? std::sin(angle) : std::cos(angle);
    EXPECT_NEAR(row[x] - 2.0, expected, 3e-7) << x;
  }
}

}  // namespace
}  // namespace hilbert_ring
