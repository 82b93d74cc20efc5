#include "tests/unit/order/naive_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

namespace hilbert_ring {
namespace {

using Cells = std::vector<std::vector<uint64_t>>;

uint64_t NaiveHilbert2d(uint64_t x, uint64_t y, int bits) {
  uint64_t key = 0;
  for (uint64_t s = uint64_t{1} << (bits - 1); s > 0; s >>= 1) {
    const uint64_t rx = (x & s) != 0, ry = (y & s) != 0;
    key += s * s * ((3 * rx) ^ ry);
    x &= s - 1;
    y &= s - 1;
    if (ry == 0) {
      if (rx == 1) {
        x = s - 1 - x;
        y = s - 1 - y;
      }
      std::swap(x, y);
    }
  }
  return key;
}

uint64_t NaiveHilbert3d(std::array<uint64_t, 3> axes, int bits) {
  const uint64_t top = uint64_t{1} << (bits - 1);
  for (uint64_t q = top; q > 1; q >>= 1) {
    for (uint64_t& axis : axes) {
      if (axis & q) {
        axes[0] ^= q - 1;
      } else {
        const uint64_t t = (axes[0] ^ axis) & (q - 1);
        axes[0] ^= t;
        axis ^= t;
      }
    }
  }
  axes[1] ^= axes[0];
  axes[2] ^= axes[1];
  uint64_t inversion = 0;
  for (uint64_t q = top; q > 1; q >>= 1) {
    if (axes[2] & q) inversion ^= q - 1;
  }
  uint64_t key = 0;
  for (int bit = bits - 1; bit >= 0; --bit) {
    for (const uint64_t axis : axes) key = key << 1 | ((axis ^ inversion) >> bit & 1);
  }
  return key;
}

uint64_t NaiveMorton(const std::vector<uint64_t>& cell, int bits) {
  uint64_t key = 0;
  for (int bit = 0; bit < bits; ++bit) {
    for (size_t axis = 0; axis < cell.size(); ++axis) {
      key |= (cell[axis] >> bit & 1) << (bit * cell.size() + axis);
    }
  }
  return key;
}

int BitLength(uint64_t value) { return std::max(1, static_cast<int>(std::bit_width(value))); }

std::vector<int64_t> OrderOfCells(Curve curve, const Cells& cells, int bits) {
  std::vector<uint64_t> keys;
  for (const auto& cell : cells) keys.push_back(NaiveKey(curve, cell, bits));
  std::vector<int64_t> order(cells.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  return order;
}

std::vector<int64_t> OrderOfSquare(Curve curve, int64_t tokens) {
  int64_t side = 1;
  while (side * side < tokens) side *= 2;
  Cells cells;
  for (int64_t t = 0; t < tokens; ++t) {
    cells.push_back({static_cast<uint64_t>(t % side), static_cast<uint64_t>(t / side)});
  }
  return OrderOfCells(curve, cells, BitLength(side - 1));
}

std::vector<int64_t> OrderOfGrid(Curve curve, const std::vector<int64_t>& grid) {
  const int64_t cols = grid[grid.size() - 1], rows = grid[grid.size() - 2];
  const int64_t planes = grid.size() == 3 ? grid[0] : 1;
  Cells cells;
  for (int64_t t = 0; t < planes * rows * cols; ++t) {
    cells.push_back({static_cast<uint64_t>(t % cols), static_cast<uint64_t>(t / cols % rows)});
    if (grid.size() == 3) cells.back().push_back(static_cast<uint64_t>(t / (cols * rows)));
  }
  return OrderOfCells(curve, cells, BitLength(*std::max_element(grid.begin(), grid.end()) - 1));
}

std::vector<int64_t> OrderOfCoords(Curve curve, int axes, const int64_t* coords, int64_t tokens) {
  Cells cells;
  for (int64_t t = 0; t < tokens; ++t) {
    cells.emplace_back(coords + t * axes, coords + (t + 1) * axes);
  }
  return OrderOfCells(curve, cells, BitLength(*std::max_element(coords, coords + tokens * axes)));
}

}  // namespace

uint64_t NaiveKey(Curve curve, const std::vector<uint64_t>& cell, int bits) {
  if (curve == Curve::kMorton) return NaiveMorton(cell, bits);
  return cell.size() == 2 ? NaiveHilbert2d(cell[0], cell[1], bits)
                          : NaiveHilbert3d({cell[0], cell[1], cell[2]}, bits);
}

std::vector<int64_t> NaiveOrder(const JobSpec& spec, const std::vector<int64_t>& coords) {
  const Ordering& ordering = *spec.ordering;
  std::vector<int64_t> lengths = spec.sequence_lengths;
  if (lengths.empty()) lengths = {spec.tokens};
  std::vector<int64_t> order;
  const auto append = [&](const std::vector<int64_t>& run) {
    const auto begin = static_cast<int64_t>(order.size());
    for (const int64_t token : run) order.push_back(begin + token);
  };
  for (const int64_t length : lengths) {
    if (ordering.window > 0) {
      for (int64_t start = 0; start < length; start += ordering.window) {
        append(OrderOfSquare(ordering.curve, std::min(ordering.window, length - start)));
      }
    } else if (!ordering.grid.empty()) {
      append(OrderOfGrid(ordering.curve, ordering.grid));
    } else if (ordering.coordinate_axes > 0) {
      const int axes = ordering.coordinate_axes;
      append(OrderOfCoords(ordering.curve, axes, coords.data() + order.size() * axes, length));
    } else {
      append(OrderOfSquare(ordering.curve, length));
    }
  }
  return order;
}

}  // namespace hilbert_ring
