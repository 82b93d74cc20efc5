#include "engine/model/files/grid_positions.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

using ::testing::HasSubstr;

constexpr GridPositions kGrid{.tile_size = 256, .grid = 1000};

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

}  // namespace
}  // namespace hilbert_ring
