// What the targets send as rows: bytes that follow from tensor and token, so that a row at the
// wrong place is seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace hilbert_ring::fuzz {

// Rows [first, first + rows) of a tensor, row_bytes each.
inline std::string RowContent(int tensor, int64_t first, int64_t rows, int64_t row_bytes) {
  std::string bytes(static_cast<size_t>(rows * row_bytes), '\0');
  char* to = bytes.data();
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t row = static_cast<uint64_t>(first) + static_cast<uint64_t>(i);
    uint64_t state = row * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(tensor);
    for (int64_t rest = row_bytes; rest > 0;) {
      state = (state ^ (state >> 29)) * 0xbf58476d1ce4e5b9 + 1;
      const int64_t part = std::min<int64_t>(rest, sizeof(state));
      std::memcpy(to, &state, static_cast<size_t>(part));
      to += part;
      rest -= part;
    }
  }
  return bytes;
}

}  // namespace hilbert_ring::fuzz
