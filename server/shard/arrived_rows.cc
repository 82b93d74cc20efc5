#include "server/shard/arrived_rows.h"

#include <algorithm>

namespace hilbert_ring::server {
namespace {

constexpr int64_t kBlockRows = 1024;

}  // namespace

ArrivedRows::ArrivedRows(std::span<const int64_t> rows, std::span<const int64_t> unsent)
    : rows_(*std::ranges::max_element(rows)) {
  for (int64_t begin = 0; begin < rows_; begin += kBlockRows) {
    int32_t& missing = missing_.emplace_back(0);
    for (const int64_t of_tensor : rows) {
      missing += static_cast<int32_t>(std::clamp<int64_t>(of_tensor - begin, 0, kBlockRows));
    }
  }
  for (const int64_t row : unsent) missing_[row / kBlockRows] -= static_cast<int32_t>(rows.size());
  Add(0, 0);
}

void ArrivedRows::Add(int64_t first, int64_t count) {
  const int64_t end = first + count;
  while (first < end) {
    const int64_t block = first / kBlockRows;
    const int64_t part = std::min(end, (block + 1) * kBlockRows) - first;
    missing_[block] -= static_cast<int32_t>(part);
    first += part;
  }
  while (prefix_ < rows_ && missing_[prefix_ / kBlockRows] <= 0) {
    prefix_ = std::min(rows_, prefix_ + kBlockRows);
  }
}

}  // namespace hilbert_ring::server
