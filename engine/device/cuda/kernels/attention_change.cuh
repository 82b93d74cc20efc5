// The change of scores before the mask: WorkChange.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

// softcap * tanh(score * factor) to 4 units in the last place; NaN stays. tanh(x) / x is a rational
// function of x^2 whose relative error is 2.1e-8 up to kMost, where float32's tanh becomes 1. It
// takes one of the few units that make reciprocals and exponentials, a tanh by exponentials two.
__device__ __forceinline__ float Capped(float score, float softcap, float factor) {
  constexpr float kMost = 9.02f;
  const float given = score * factor;
  const float x = fabsf(given) > kMost ? copysignf(kMost, given) : given;
  const float square = x * x;
  float above = 1.33192445e-8f;
  above = fmaf(above, square, 2.05836397e-5f);
  above = fmaf(above, square, 3.49404576e-3f);
  above = fmaf(above, square, 0.133797279f);
  above = fmaf(above, square, 1.0f);
  float below = 7.76209991e-7f;
  below = fmaf(below, square, 3.28311002e-4f);
  below = fmaf(below, square, 2.58711175e-2f);
  below = fmaf(below, square, 0.467130432f);
  below = fmaf(below, square, 1.0f);
  return softcap * (x * (above * Reciprocal(below)));
}

template <int kRows, int kColumns>
__device__ __forceinline__ void CapScores(float (&scores)[kRows][kColumns], float softcap,
                                          float factor) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) scores[i][j] = Capped(scores[i][j], softcap, factor);
  }
}

// The change without the bias.
template <int kRows, int kColumns>
__device__ __forceinline__ void ScaleOrCap(float (&scores)[kRows][kColumns],
                                           const WorkChange& change) {
  if (change.softcap > 0) {
    CapScores(scores, change.softcap, change.cap_factor);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) scores[i][j] *= change.scale;
  }
}

// The distance of two places, rounded once below 2^48. Conversions of 64-bit integers are slow.
__device__ __forceinline__ float DistanceOf(int64_t apart) {
  const int64_t distance = apart < 0 ? -apart : apart;
  const int upper = static_cast<int>(distance >> 24), lower = static_cast<int>(distance & 0xffffff);
  return fmaf(static_cast<float>(upper), 0x1p24f, static_cast<float>(lower));
}

__device__ __forceinline__ float Biased(float score, float slope, float distance) {
  return fmaf(-slope, distance, score);
}

// The whole change of a score in float64, at factors of any size. slope: the lane's.
__device__ inline float ChangedExactly(const WorkChange& change, float score, float slope,
                                       float distance) {
  double changed = double{score} * change.scale;
  if (change.softcap > 0) changed = change.softcap * tanh(changed / change.softcap);
  if (change.slopes != nullptr) changed -= double{slope} * distance;
  return static_cast<float>(changed);
}

}  // namespace hilbert_ring::cuda
