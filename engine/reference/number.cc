#include "engine/reference/number.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace hilbert_ring {
namespace {

template <typename T>
T Load(const std::byte* begin, size_t index) {
  T value;
  std::memcpy(&value, begin + index * sizeof(T), sizeof(T));
  return value;
}

double OfFloat16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double OfBFloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

}  // namespace

void WidenNumbers(DataType dtype, const std::byte* from, std::span<double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DataType::kFloat32:
        values[i] = Load<float>(from, i);
        break;
      case DataType::kFloat16:
        values[i] = OfFloat16(Load<uint16_t>(from, i));
        break;
      case DataType::kBFloat16:
        values[i] = OfBFloat16(Load<uint16_t>(from, i));
        break;
    }
  }
}

}  // namespace hilbert_ring
