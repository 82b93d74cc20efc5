// The job of the published speed, with and without an order.
#pragma once

#include <cstdint>

#include "engine/spec/job_spec.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring {

// 8 heads of dimension 64, [2048, 4096, 8192] with [1, 2, 4]. hilbert: along a curve on the most
// nearly square grid.
inline JobSpec PublishedJob(int64_t tokens, DataType dtype, bool hilbert) {
  JobSpec spec = PublishedSpec(tokens, dtype);
  if (!hilbert) return spec;
  int64_t rows = 1;
  for (int64_t side = 1; side * side <= tokens; ++side) {
    if (tokens % side == 0) rows = side;
  }
  spec.ordering = Ordering{.grid = {rows, tokens / rows}};
  return spec;
}

}  // namespace hilbert_ring
