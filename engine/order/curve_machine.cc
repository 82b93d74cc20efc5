#include "engine/order/curve_machine.h"

#include <array>
#include <cassert>
#include <utility>

namespace hilbert_ring {
namespace {

// The effect of the higher levels on the bits of lower ones in the bitwise definitions.
struct Transform {
  std::array<uint8_t, 3> source = {0, 1, 2};  // axis i holds the bits of axis source[i]...
  std::array<uint8_t, 3> flip = {0, 0, 0};    // ...inverted if flip[i] is 1
  uint8_t odd = 0;                            // 3-D: 1 if this level's digits are inverted

  uint32_t Bit(uint32_t cell, int axis) const { return (cell >> source[axis] & 1) ^ flip[axis]; }

  void Swap(int a, int b) {
    std::swap(source[a], source[b]);
    std::swap(flip[a], flip[b]);
  }
};

// Each function reads one level: it returns the key digit and advances the transform.

uint32_t MortonDigit(Transform& transform, uint32_t cell) { return cell; }

// Classical xy2d.
uint32_t Hilbert2dDigit(Transform& transform, uint32_t cell) {
  const uint32_t x = transform.Bit(cell, 0), y = transform.Bit(cell, 1);
  if (y == 0) {
    if (x == 1) {
      transform.flip[0] ^= 1;
      transform.flip[1] ^= 1;
    }
    transform.Swap(0, 1);
  }
  return (3 * x) ^ y;
}

// Skilling's AxestoTranspose: undoes the excess work, encodes by Gray, inverts below odd levels.
uint32_t Hilbert3dDigit(Transform& transform, uint32_t cell) {
  const std::array<uint32_t, 3> bits = {transform.Bit(cell, 0), transform.Bit(cell, 1),
                                        transform.Bit(cell, 2)};
  for (int axis = 0; axis < 3; ++axis) {
    if (bits[axis] == 1) {
      transform.flip[0] ^= 1;
    } else {
      transform.Swap(0, axis);
    }
  }
  const uint32_t gray0 = bits[0], gray1 = bits[1] ^ gray0, gray2 = bits[2] ^ gray1;
  const uint32_t inversion = transform.odd == 1 ? 7 : 0;
  transform.odd ^= gray2;
  return (gray0 << 2 | gray1 << 1 | gray2) ^ inversion;
}

using LevelDigits = std::array<uint32_t, 8>;  // key digit of every quadrant (octant)

StepTable LevelTable(Curve curve, int axes) {
  const auto digit_of = curve == Curve::kMorton ? MortonDigit
                        : axes == 2             ? Hilbert2dDigit
                                                : Hilbert3dDigit;
  const uint32_t cells = uint32_t{1} << axes;
  const auto digits_of = [&](const Transform& transform) {
    LevelDigits digits = {};
    for (uint32_t cell = 0; cell < cells; ++cell) {
      Transform next = transform;
      digits[cell] = digit_of(next, cell);
    }
    return digits;
  };

  // A breadth-first search over the states that kStart reaches. Transforms that agree in the digits
  // of a level agree at every level: 3-D has 48 transforms but 24 states.
  StepTable table{.levels = 1, .width = axes};
  std::vector<Transform> transforms = {Transform{}};
  std::vector<LevelDigits> states = {digits_of(transforms[0])};
  for (size_t state = 0; state < states.size(); ++state) {
    table.of_cell.resize((state + 1) << axes);
    table.of_key.resize((state + 1) << axes);
    for (uint32_t cell = 0; cell < cells; ++cell) {
      Transform next = transforms[state];
      const uint32_t digit = digit_of(next, cell);
      const LevelDigits next_digits = digits_of(next);
      size_t next_state = 0;
      while (next_state < states.size() && states[next_state] != next_digits) ++next_state;
      if (next_state == states.size()) {
        states.push_back(next_digits);
        transforms.push_back(next);
      }
      table.of_cell[state << axes | cell] = static_cast<uint16_t>(next_state << axes | digit);
      table.of_key[state << axes | digit] = static_cast<uint16_t>(next_state << axes | cell);
    }
  }
  return table;
}

StepTable WideTable(const StepTable& level, int axes, int levels) {
  StepTable table{.levels = levels, .width = levels * axes};
  const auto states = static_cast<uint32_t>(level.of_cell.size() >> axes);
  table.of_cell.resize(size_t{states} << table.width);
  table.of_key.resize(size_t{states} << table.width);
  for (uint32_t start = 0; start < states; ++start) {
    for (uint32_t cell = 0; cell <= table.mask(); ++cell) {
      uint32_t state = start, key = 0;
      for (int bit = levels - 1; bit >= 0; --bit) {
        uint32_t quadrant = 0;
        for (int axis = 0; axis < axes; ++axis) {
          quadrant |= (cell >> (axis * levels + bit) & 1) << axis;
        }
        const uint32_t entry = level.entry_of_cell(state, quadrant);
        key = key << axes | (entry & level.mask());
        state = entry >> axes;
      }
      const uint32_t next = state << table.width;
      table.of_cell[start << table.width | cell] = static_cast<uint16_t>(next | key);
      table.of_key[start << table.width | key] = static_cast<uint16_t>(next | cell);
    }
  }
  return table;
}

}  // namespace

CurveMachine::CurveMachine(Curve curve, int axes)
    : axes_(axes),
      level_(LevelTable(curve, axes)),
      step_(WideTable(level_, axes, StepLevels(axes))),
      padded_start_(StepLevels(axes), kStart) {
  // Levels of zeros walk a cycle of states through kStart, because the curve starts in the cell of
  // zeros.
  std::vector<uint32_t> cycle = {kStart};
  while (true) {
    const uint32_t entry = level_.entry_of_cell(cycle.back(), 0);
    assert((entry & level_.mask()) == 0);
    if (entry >> axes == kStart) break;
    cycle.push_back(entry >> axes);
  }
  for (size_t padding = 1; padding < padded_start_.size(); ++padding) {
    padded_start_[padding] = cycle[(cycle.size() - padding % cycle.size()) % cycle.size()];
  }
}

const CurveMachine& CurveMachine::Of(Curve curve, int axes) {
  assert(axes == 2 || axes == 3);
  static const CurveMachine hilbert_2d(Curve::kHilbert, 2);
  static const CurveMachine hilbert_3d(Curve::kHilbert, 3);
  static const CurveMachine morton_2d(Curve::kMorton, 2);
  static const CurveMachine morton_3d(Curve::kMorton, 3);
  if (curve == Curve::kHilbert) return axes == 2 ? hilbert_2d : hilbert_3d;
  return axes == 2 ? morton_2d : morton_3d;
}

}  // namespace hilbert_ring
