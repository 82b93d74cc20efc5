#include "engine/order/curve.h"

#include <array>
#include <cassert>

#include "engine/order/curve_machine.h"

namespace hilbert_ring {
namespace {

template <int kAxes>
uint64_t Key(const CurveMachine& machine, const std::array<uint64_t, kAxes>& cell, int bits) {
  constexpr int kLevels = StepLevels(kAxes);
  constexpr int kWidth = kLevels * kAxes;
  constexpr uint64_t kAxisMask = (1 << kLevels) - 1;
  constexpr uint32_t kMask = (1 << kWidth) - 1;
  const uint16_t* const table = machine.step().of_cell.data();
  const int steps = (bits + kLevels - 1) / kLevels;
  uint32_t state = machine.PaddedStart(steps * kLevels - bits) << kWidth;
  uint64_t key = 0;
  for (int shift = (steps - 1) * kLevels; shift >= 0; shift -= kLevels) {
    uint64_t step_cell = 0;
    for (int axis = 0; axis < kAxes; ++axis) {
      step_cell |= (cell[axis] >> shift & kAxisMask) << (axis * kLevels);
    }
    const uint32_t entry = table[state | step_cell];
    key = key << kWidth | (entry & kMask);
    state = entry & ~kMask;
  }
  return key;
}

template <int kAxes>
Cell CellOf(const CurveMachine& machine, uint64_t key, int bits) {
  constexpr int kLevels = StepLevels(kAxes);
  constexpr int kWidth = kLevels * kAxes;
  constexpr uint64_t kAxisMask = (1 << kLevels) - 1;
  constexpr uint32_t kMask = (1 << kWidth) - 1;
  const uint16_t* const table = machine.step().of_key.data();
  const int steps = (bits + kLevels - 1) / kLevels;
  uint32_t state = machine.PaddedStart(steps * kLevels - bits) << kWidth;
  Cell cell;
  for (int step = steps - 1; step >= 0; --step) {
    const uint32_t entry = table[state | (key >> (step * kWidth) & kMask)];
    cell.x = cell.x << kLevels | (entry & kAxisMask);
    cell.y = cell.y << kLevels | (entry >> kLevels & kAxisMask);
    if constexpr (kAxes == 3) cell.z = cell.z << kLevels | (entry >> (2 * kLevels) & kAxisMask);
    state = entry & ~kMask;
  }
  return cell;
}

template <int kAxes>
void Keys(const CurveMachine& machine, int bits, std::span<const int64_t> coords,
          std::span<uint64_t> keys) {
  const int64_t* row = coords.data();
  for (uint64_t& key : keys) {
    std::array<uint64_t, kAxes> cell;
    for (int axis = 0; axis < kAxes; ++axis) cell[axis] = static_cast<uint64_t>(row[axis]);
    key = Key<kAxes>(machine, cell, bits);
    row += kAxes;
  }
}

}  // namespace

uint64_t CurveKey2d(Curve curve, uint64_t x, uint64_t y, int bits) {
  assert(bits >= 1 && bits <= 32);
  return Key<2>(CurveMachine::Of(curve, 2), {x, y}, bits);
}

uint64_t CurveKey3d(Curve curve, uint64_t x, uint64_t y, uint64_t z, int bits) {
  assert(bits >= 1 && bits <= 21);
  return Key<3>(CurveMachine::Of(curve, 3), {x, y, z}, bits);
}

Cell CurveCell2d(Curve curve, uint64_t key, int bits) {
  assert(bits >= 1 && bits <= 32);
  return CellOf<2>(CurveMachine::Of(curve, 2), key, bits);
}

Cell CurveCell3d(Curve curve, uint64_t key, int bits) {
  assert(bits >= 1 && bits <= 21);
  return CellOf<3>(CurveMachine::Of(curve, 3), key, bits);
}

void CurveKeys(Curve curve, int axes, int bits, std::span<const int64_t> coords,
               std::span<uint64_t> keys) {
  assert(coords.size() == keys.size() * axes);
  const CurveMachine& machine = CurveMachine::Of(curve, axes);
  if (axes == 2) {
    Keys<2>(machine, bits, coords, keys);
  } else {
    Keys<3>(machine, bits, coords, keys);
  }
}

}  // namespace hilbert_ring
