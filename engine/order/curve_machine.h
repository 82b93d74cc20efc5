// A space-filling curve as a state machine over the bits of a cell, the highest level first.
//
// A level is one bit of every axis: x | y << 1 | z << 2 names a quadrant (octant) of a square
// (cube). The state is the order in which the curve passes through them. A step takes several
// levels at once: that many bits of every axis, x lowest.
//
//   const CurveMachine& machine = CurveMachine::Of(Curve::kHilbert, 2);
//   uint32_t entry = machine.level().entry_of_key(state, 0);  // of the curve's first quadrant
//   entry & machine.level().mask();                           // its number
//   entry >> machine.level().width;                           // the state inside it
#pragma once

#include <cstdint>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Levels of a step. A core of an EPYC (Zen 3) makes this many million 20-bit keys a second, by
// levels: 2-D 102 (3), 148 (4), 190 (5); 3-D 54 (2), 78 (3), 85 (4). Sorting takes several times
// longer. These tables, of 2 KiB and 24 KiB, leave room in the first cache.
constexpr int StepLevels(int axes) { return axes == 2 ? 4 : 3; }

// An entry is next state << width | key digits (of_cell) or cell bits (of_key).
struct StepTable {
  int levels = 1;
  int width = 2;                  // levels * axes
  std::vector<uint16_t> of_cell;  // [state << width | cell bits]
  std::vector<uint16_t> of_key;   // [state << width | key digits]

  uint32_t mask() const { return (uint32_t{1} << width) - 1; }
  uint32_t entry_of_cell(uint32_t state, uint32_t cell) const {
    return of_cell[state << width | cell];
  }
  uint32_t entry_of_key(uint32_t state, uint32_t key) const { return of_key[state << width | key]; }
};

// Immutable; thread-safe.
class CurveMachine {
 public:
  // axes 2 or 3. The first call builds it.
  static const CurveMachine& Of(Curve curve, int axes);

  int axes() const { return axes_; }
  const StepTable& level() const { return level_; }
  const StepTable& step() const { return step_; }  // StepLevels(axes) levels

  // State of the enclosing square (cube).
  static constexpr uint32_t kStart = 0;

  // The state from which `padding` < StepLevels(axes) levels of zero bits lead to kStart with zero
  // digits: whole steps serve any number of levels.
  uint32_t PaddedStart(int padding) const { return padded_start_[padding]; }

 private:
  CurveMachine(Curve curve, int axes);

  int axes_;
  StepTable level_, step_;
  std::vector<uint32_t> padded_start_;
};

}  // namespace hilbert_ring
