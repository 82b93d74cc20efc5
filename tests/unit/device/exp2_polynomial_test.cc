// Exponentials as polynomials against float64, by the kernels' source as host code.
#include "engine/device/cuda/kernels/exp2_polynomial.cuh"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace hilbert_ring::cuda {
namespace {

constexpr double kMostError = 4e-6;

TEST(Exp2Polynomial, IsTwoToThatPower) {
  for (float x = -126; x <= 16; x += 1.0f / 1024) {
    const double expected = std::exp2(double{x});
    EXPECT_NEAR(Exp2Polynomial(x) / expected, 1, kMostError) << x;
  }
}

TEST(Exp2Polynomial, TheGreatestWeightIsOne) {
  EXPECT_EQ(Exp2Polynomial(0.0f), 1.0f);
  EXPECT_EQ(Exp2Polynomial(10.0f), 1024.0f);  // float16 weights are shifted
}

TEST(Exp2Polynomial, WhatIsHiddenHasNoWeightAndNaNIsKept) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {-126.5f, -1000.0f, -1e30f, -infinity}) {
    EXPECT_EQ(Exp2Polynomial(x), 0.0f) << x;
  }
  EXPECT_TRUE(std::isnan(Exp2Polynomial(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace hilbert_ring::cuda
