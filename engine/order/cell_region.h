// The existing cells of a curve's square (cube), a token each, in row-major order: a grid, or a
// run's implicit square, whose last row may be partial.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "engine/order/curve.h"

namespace hilbert_ring {

struct CellRegion {
  int axes = 2;
  int bits = 1;  // the square (cube) has 2^bits cells a side
  int64_t cols = 0;
  int64_t rows = 0;  // whole rows of a plane
  int64_t planes = 1;
  int64_t rest = 0;  // cells of a partial last row, only in 2-D

  // The smallest square of a power of two cells a side that holds `tokens` tokens.
  static CellRegion Square(int64_t tokens) {
    int levels = 0;
    while ((int64_t{1} << (2 * levels)) < tokens) ++levels;
    const int64_t side = int64_t{1} << levels;
    return {.bits = std::max(1, levels),
            .cols = side,
            .rows = tokens >> levels,
            .rest = tokens & (side - 1)};
  }

  // [rows, cols] or [planes, rows, cols].
  static CellRegion Grid(std::span<const int64_t> grid) {
    const size_t axes = grid.size();
    const auto last = static_cast<uint64_t>(*std::max_element(grid.begin(), grid.end()) - 1);
    return {.axes = static_cast<int>(axes),
            .bits = std::max(1, static_cast<int>(std::bit_width(last))),
            .cols = grid[axes - 1],
            .rows = grid[axes - 2],
            .planes = axes == 3 ? grid[0] : 1};
  }

  int64_t size() const { return planes * rows * cols + rest; }

  Cell CellOfToken(int64_t token) const {
    const int64_t row = token / cols;
    Cell cell = {.x = static_cast<uint64_t>(token - row * cols), .y = static_cast<uint64_t>(row)};
    if (axes == 3) {
      cell.z = static_cast<uint64_t>(row / rows);
      cell.y = static_cast<uint64_t>(row % rows);
    }
    return cell;
  }

  int64_t TokenOfCell(const Cell& cell) const {
    return static_cast<int64_t>((cell.z * rows + cell.y) * cols + cell.x);
  }

  // Existing cells in the square (cube) at `origin` with `side` cells a side.
  int64_t Count(const Cell& origin, int64_t side) const {
    const auto x = static_cast<int64_t>(origin.x), y = static_cast<int64_t>(origin.y);
    const int64_t wide = std::clamp<int64_t>(cols - x, 0, side);
    int64_t count = wide * std::clamp<int64_t>(rows - y, 0, side);
    if (axes == 3) {
      return count * std::clamp<int64_t>(planes - static_cast<int64_t>(origin.z), 0, side);
    }
    if (rest > 0 && y <= rows && rows - y < side) {
      count += std::clamp<int64_t>(rest - x, 0, side);
    }
    return count;
  }
};

}  // namespace hilbert_ring
