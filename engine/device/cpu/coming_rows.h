// Rows of keys and values that will be packed soon, and their cache lines. Prefetches one by one
// between products arrive in time, and do not fill a core's memory requests in bursts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hilbert_ring {

inline constexpr int64_t kLineBytes = 64;  // of a cache, or a multiple of its own

// Prefetches into the second-level cache: the first does not keep a line until its use. Always
// inlined, because GCC drops calls of a function that only prefetches.
struct Prefetch {
  [[gnu::always_inline]] void operator()(const char* at) const { __builtin_prefetch(at, 0, 2); }
};

// Prefetches a line of the next tile into the first-level cache, and a later line into the second.
// Memory was read by a fifth faster than with either alone (AMD EPYC Zen 4).
struct PrefetchSoon {
  static constexpr int64_t kLater = 256 << 10;
  [[gnu::always_inline]] void operator()(const char* at) const {
    __builtin_prefetch(at, 0, 3);
    __builtin_prefetch(at + kLater, 0, 2);
  }
};

// Rows in the task's memory; strides and sizes in bytes.
struct ComingRows {
  const char* keys = nullptr;
  const char* values = nullptr;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t key_bytes = 0;
  int64_t value_bytes = 0;
  int64_t count = 0;
};

class ComingLines {
 public:
  // `calls` of Next() ask for all lines, each for about as many.
  ComingLines(const ComingRows& rows, int64_t calls)
      : rows_(rows),
        bytes_(std::max(rows.key_bytes, rows.value_bytes)),
        left_(rows.count * ((bytes_ + kLineBytes - 1) / kLineBytes)),
        each_(calls > 0 ? (left_ + calls - 1) / calls : 0),
        key_(rows.keys),
        value_(rows.values) {}

  // Calls ask(address) for an address in each line. A row's end is no branch: it comes at other
  // calls in every block, so a processor would not predict it.
  template <typename Ask = Prefetch>
  void Next(const Ask& ask = {}) {
    const int64_t now = std::min(each_, left_);
    left_ -= now;
    for (int64_t i = 0; i < now; ++i) {
      if (at_ < rows_.key_bytes) ask(key_ + at_);
      if (at_ < rows_.value_bytes) ask(value_ + at_);
      at_ += kLineBytes;
      const int64_t row_ends = -int64_t{at_ >= bytes_};  // all bits or 0
      key_ += rows_.key_stride & row_ends;
      value_ += rows_.value_stride & row_ends;
      at_ &= ~row_ends;
    }
  }

 private:
  const ComingRows& rows_;
  int64_t bytes_;  // of the longer row
  int64_t left_;   // lines
  int64_t each_;
  const char* key_;
  const char* value_;
  int64_t at_ = 0;
};

}  // namespace hilbert_ring
