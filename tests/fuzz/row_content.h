// What the targets send as rows: bytes that follow from tensor and token, so that a row at the
// wrong place is seen.
#pragma once

#include <cstdint>
#include <string>

namespace hilbert_ring::fuzz {

// Rows [first, first + rows) of a tensor, row_bytes each.
inline std::string RowContent(int tensor, int64_t first, int64_t rows, int64_t row_bytes) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(rows * row_bytes));
  for (int64_t row = first; row < first + rows; ++row) {
    uint64_t state =
        static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(tensor);
    for (int64_t i = 0; i < row_bytes; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      bytes.push_back(static_cast<char>(state >> 56));
    }
  }
  return bytes;
}

}  // namespace hilbert_ring::fuzz
