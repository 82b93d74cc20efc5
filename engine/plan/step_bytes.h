// Sizes of exchange buffers: a rank's blocks of each step, and the arena of two steps.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/saturating.h"

namespace hilbert_ring {

// Blocks start at multiples of 64 bytes.
inline int64_t BlockStride(int64_t bytes) { return SaturatingAdd(bytes, 63) / 64 * 64; }

// Step 0 holds packed blocks, step t > 0 arrived ones. Even steps lie at the front of the arena and
// odd ones at its end, so that neighbours do not overlap.
class StepBytes {
 public:
  explicit StepBytes(int workers) : bytes_(workers) {}
  void Add(int rank, int64_t step, int64_t bytes);
  int64_t ArenaBytes(int rank) const;

 private:
  std::vector<std::vector<int64_t>> bytes_;  // [rank][step]
};

}  // namespace hilbert_ring
