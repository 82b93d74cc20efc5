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
