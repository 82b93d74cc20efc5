// Byte counts of jobs at a spec's limits may pass 2^63; they stop there instead of wrapping.
#pragma once

#include <cstdint>
#include <limits>

namespace hilbert_ring {

// a and b are not negative.
inline int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

}  // namespace hilbert_ring
