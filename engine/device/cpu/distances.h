// Distances of positions, exact in float32 until one rounding.
//
// A position is high * kDistanceUnit + low: two numbers of at most 2^21 in magnitude, up to
// positions of 2^40. Their differences are exact, and one multiply-add makes the distance.
#pragma once

#include <cstdint>

#include "engine/device/attention.h"

namespace hilbert_ring {

inline constexpr float kDistanceUnit = 0x1p20f;

inline void SplitPosition(int64_t position, float& high, float& low) {
  high = static_cast<float>(position >> 20);
  low = static_cast<float>(position & ((int64_t{1} << 20) - 1));
}

// Positions of a query row and of a key row, as a bias measures them.
inline int64_t QueryPosition(const AttentionTask& task, int64_t batch, int64_t row) {
  const PositionsView& view = task.query_positions;
  if (view.data != nullptr) return view.data[batch * view.batch_stride + row * view.row_stride];
  return (row + task.diagonal_shift) * task.change.row_distance;
}

inline int64_t KeyPosition(const AttentionTask& task, int64_t batch, int64_t row) {
  const PositionsView& view = task.key_positions;
  if (view.data != nullptr) return view.data[batch * view.batch_stride + row * view.row_stride];
  return row * task.change.row_distance;
}

}  // namespace hilbert_ring
