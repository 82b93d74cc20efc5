// The header of NumPy's .npy format: versions 1.0, 2.0 and 3.0, little-endian numbers.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::wire {

enum class NpyType {
  kFloat16,
  kFloat32,
  kFloat64,
  kRaw16,  // two bytes without a type in NumPy; bfloat16 is saved so
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
};

int64_t NpyItemBytes(NpyType type);
const char* NpyTypeName(NpyType type);  // "float32"; "raw 16-bit"
const char* NpyDescr(NpyType type);     // "<f4"

struct NpyHeader {
  NpyType type = NpyType::kFloat32;
  std::vector<int64_t> shape;
  bool fortran_order = false;  // the first axis varies fastest; false if both orders are equal
  int64_t data_offset = 0;     // in the file
  int64_t data_bytes = 0;
};

// Longest header that is read. A shape of 32 axes takes less than 1 KiB; the rest is padding.
inline constexpr int64_t kMaxNpyHeaderBytes = 1 << 20;

// Returns whether a file of this type may hold a job's numbers. bfloat16 comes as 16-bit integers
// or raw 16-bit.
bool MayHold(NpyType type, DataType dtype);

// file: the whole file, or at least its header. INVALID_ARGUMENT, with the field: not a .npy file,
// an unknown version, a truncated, too long or malformed header, or big-endian or structured
// numbers.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view file);

// Writes a version 1.0 header of an array in C order, padded so that the data start at a multiple
// of 64 bytes.
std::string FormatNpyHeader(NpyType type, std::span<const int64_t> shape);

// "(4096, 8, 64)".
std::string FormatShape(std::span<const int64_t> shape);

}  // namespace hilbert_ring::wire
