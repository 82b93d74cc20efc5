#include "engine/spec/numbers.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

struct Format {
  DataType dtype;
  int exponent_bits, mantissa_bits;
};
constexpr Format kFormats[] = {{DataType::kBFloat16, 8, 7}, {DataType::kFloat16, 5, 10}};

// The value of 16 bits from the definition of the format.
double Value(const Format& f, uint16_t bits) {
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const int exponent = bits >> f.mantissa_bits & ((1 << f.exponent_bits) - 1);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << f.exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp((1 << f.mantissa_bits) + mantissa, exponent - bias - f.mantissa_bits);
}

float Load(const Format& f, uint16_t bits) { return LoadElement(f.dtype, &bits, 0); }

uint16_t Store(const Format& f, float value) {
  uint16_t bits;
  StoreElement(f.dtype, &bits, 0, value);
  return bits;
}

TEST(Numbers, EveryHalfHasItsValueAndComesBack) {
  for (const Format& f : kFormats) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const double expected = Value(f, half);
      const float value = Load(f, half);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << bits;
        EXPECT_TRUE(std::isnan(Load(f, Store(f, value)))) << bits;
      } else {
        EXPECT_EQ(value, expected) << bits;
        EXPECT_EQ(std::signbit(value), std::signbit(expected)) << bits;
        EXPECT_EQ(Store(f, value), half) << bits;
      }
    }
  }
}

// Between neighbours the nearer wins, in the middle the even one. Infinity takes the place of the
// next finite number.
TEST(Numbers, RoundsToNearestEven) {
  for (const Format& f : kFormats) {
    const uint16_t infinity =
        static_cast<uint16_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
    for (uint16_t low = 0; low < infinity; ++low) {
      const double a = Value(f, low);
      const double b = low + 1 == infinity ? 2 * a - Value(f, low - 1) : Value(f, low + 1);
      const float middle = static_cast<float>((a + b) / 2);
      if (middle != (a + b) / 2) continue;  // only half of bfloat16's least subnormal does not fit
      const uint16_t even = low % 2 == 0 ? low : low + 1;
      EXPECT_EQ(Store(f, middle), even) << low;
      EXPECT_EQ(Store(f, -middle), even | 0x8000) << low;
      EXPECT_EQ(Store(f, std::nextafter(middle, 0.0f)), low);
      EXPECT_EQ(Store(f, std::nextafter(middle, INFINITY)), low + 1);
    }
    EXPECT_EQ(Store(f, std::numeric_limits<float>::max()), infinity);
    EXPECT_EQ(Store(f, -INFINITY), infinity | 0x8000);
  }
}

TEST(Numbers, ElementsNeedNotBeAligned) {
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    std::vector<std::byte> bytes(1 + 3 * ElementBytes(dtype));
    for (int64_t i = 0; i < 3; ++i) {
      StoreElement(dtype, bytes.data() + 1, i, 1.5f * static_cast<float>(i));
    }
    double values[3];
    LoadElements(dtype, bytes.data() + 1, values);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(values[i], 1.5 * i);
    EXPECT_EQ(LoadElement(dtype, bytes.data() + 1, 2), 3.0f);
  }
}

}  // namespace
}  // namespace hilbert_ring
