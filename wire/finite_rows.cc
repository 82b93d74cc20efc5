#include "wire/finite_rows.h"

#include <cstring>

namespace hilbert_ring::wire {
namespace {

template <typename Word>
bool SomeExponentFull(const std::byte* numbers, int64_t bytes, Word exponent) {
  bool full = false;
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof(Word))) {
    Word number;
    std::memcpy(&number, numbers + at, sizeof(Word));
    full |= (number & exponent) == exponent;
  }
  return full;
}

}  // namespace

bool IsFinite(DataType type, const std::byte* row, int64_t bytes) {
  switch (type) {
    case DataType::kFloat16:
      return !SomeExponentFull<uint16_t>(row, bytes, 0x7c00);
    case DataType::kBFloat16:
      return !SomeExponentFull<uint16_t>(row, bytes, 0x7f80);
    case DataType::kFloat32:
      break;
  }
  return !SomeExponentFull<uint32_t>(row, bytes, 0x7f800000);
}

}  // namespace hilbert_ring::wire
