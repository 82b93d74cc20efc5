// 2^x by additions and multiplications. A multiprocessor makes 16 exponentials or 128 products and
// sums a cycle, so a kernel that waits for exponentials makes a part of them this way.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

// Relative error 4e-06 for x up to 126, far below that of rounding a weight to 16 bits. Exactly 1
// at 0; like Exp2, 0 below -126 and NaN for NaN.
__device__ __forceinline__ float Exp2Polynomial(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: the sum with it has no fraction
  constexpr float kLeast = -126.0f;
  const float shifted = x + kRounder;
  const float fraction = x - (shifted - kRounder);  // within [-0.5, 0.5]
  float power = 0.009582853f;
  power = fmaf(power, fraction, 0.055906426f);
  power = fmaf(power, fraction, 0.240240991f);
  power = fmaf(power, fraction, 0.693124175f);
  power = fmaf(power, fraction, 1.0f);
  // 2^(x - fraction): the sum's last bits are x - fraction.
  const unsigned exponent = (__float_as_uint(shifted) << 23) + 0x3f800000u;
  return x < kLeast ? 0.0f : power * __uint_as_float(exponent);
}

}  // namespace hilbert_ring::cuda
