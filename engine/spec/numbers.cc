#include "engine/spec/numbers.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace hilbert_ring {
namespace {

template <typename T>
T Load(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

template <typename T>
void Store(void* data, int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(data) + index * int64_t{sizeof(T)}, &value, sizeof(T));
}

}  // namespace

float BFloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  }
  if (magnitude < 0x400u) {  // zero and subnormals are multiples of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
}

uint16_t FloatToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x47800000u) {  // 2^16; from 65520 on the rounding carries into infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // 2^-14: adding 0.5 rounds at 2^-24, float16's last place
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(half | (bits >> 16 & 0x8000u));
}

float LoadElement(DataType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DataType::kFloat32:
      return Load<float>(data, index);
    case DataType::kBFloat16:
      return BFloat16ToFloat(Load<uint16_t>(data, index));
    case DataType::kFloat16:
      return Float16ToFloat(Load<uint16_t>(data, index));
  }
  return 0.0f;
}

void StoreElement(DataType dtype, void* data, int64_t index, float value) {
  switch (dtype) {
    case DataType::kFloat32:
      return Store<float>(data, index, value);
    case DataType::kBFloat16:
      return Store<uint16_t>(data, index, FloatToBFloat16(value));
    case DataType::kFloat16:
      return Store<uint16_t>(data, index, FloatToFloat16(value));
  }
}

void LoadElements(DataType dtype, const void* data, std::span<double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadElement(dtype, data, static_cast<int64_t>(i));
  }
}

}  // namespace hilbert_ring
