// The numbers of a two-dimensional array on disk, of any type and order.
//
//   VisitIntegers(file, [&](auto numbers) { return numbers.At(row, axis); });
#pragma once

#include <cstdint>
#include <cstring>

#include "client/cpp/npy.h"

namespace hilbert_ring::client {

// Numbers [rows, axes] of type T, maybe unaligned.
template <typename T>
class Numbers {
 public:
  Numbers(const void* begin, int64_t row_stride, int64_t axis_stride)
      : begin_(static_cast<const char*>(begin)),
        row_stride_(row_stride),
        axis_stride_(axis_stride) {}

  T At(int64_t row, int64_t axis) const {
    T value;
    const int64_t index = row * row_stride_ + axis * axis_stride_;
    std::memcpy(&value, begin_ + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }

 private:
  const char* begin_;
  int64_t row_stride_, axis_stride_;
};

inline bool IsInteger(wire::NpyType type) {
  switch (type) {
    case wire::NpyType::kInt16:
    case wire::NpyType::kUInt16:
    case wire::NpyType::kInt32:
    case wire::NpyType::kUInt32:
    case wire::NpyType::kInt64:
    case wire::NpyType::kUInt64:
      return true;
    default:
      return false;
  }
}

template <typename T>
Numbers<T> NumbersOf(const NpyFile& file) {
  const int64_t rows = file.shape()[0], axes = file.shape()[1];
  const bool fortran = file.fortran_order();
  return Numbers<T>(file.data(), fortran ? 1 : axes, fortran ? rows : 1);
}

// Calls function(Numbers<T>) with T of the file; its type must satisfy IsInteger.
template <typename Function>
auto VisitIntegers(const NpyFile& file, Function function) {
  switch (file.type()) {
    case wire::NpyType::kInt16:
      return function(NumbersOf<int16_t>(file));
    case wire::NpyType::kUInt16:
      return function(NumbersOf<uint16_t>(file));
    case wire::NpyType::kInt32:
      return function(NumbersOf<int32_t>(file));
    case wire::NpyType::kUInt32:
      return function(NumbersOf<uint32_t>(file));
    case wire::NpyType::kUInt64:
      return function(NumbersOf<uint64_t>(file));
    default:
      return function(NumbersOf<int64_t>(file));
  }
}

}  // namespace hilbert_ring::client
