// Rows of keys and values that will be packed soon, and the lines of a cache that hold them: asked
// for one by one between products, they are there in time, and no burst of them fills what a core
// waits for memory with.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hilbert_ring {

inline constexpr int64_t kLineBytes = 64;  // of a cache, or a multiple of what it has

// To be inlined: to GCC a function that only prefetches has no effect, and it leaves out calls of
// it. MachineCode.prefetch reads the objects.
struct Prefetch {
  void operator()(const char* at) const { __builtin_prefetch(at); }
};

// Rows where they lie; strides and sizes in bytes.
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
  // `calls` of Next() ask for all, each for about as much.
  ComingLines(const ComingRows& rows, int64_t calls)
      : rows_(rows),
        lines_((std::max(rows.key_bytes, rows.value_bytes) + kLineBytes - 1) / kLineBytes),
        each_(calls > 0 ? (rows.count * lines_ + calls - 1) / calls : 0) {}

  // ask(address) for an address in each line.
  template <typename Ask = Prefetch>
  void Next(const Ask& ask = {}) {
    for (int64_t i = 0; i < each_ && row_ < rows_.count; ++i) {
      const int64_t at = line_ * kLineBytes;
      if (at < rows_.key_bytes) ask(rows_.keys + row_ * rows_.key_stride + at);
      if (at < rows_.value_bytes) ask(rows_.values + row_ * rows_.value_stride + at);
      if (++line_ == lines_) {
        line_ = 0;
        ++row_;
      }
    }
  }

 private:
  const ComingRows& rows_;
  int64_t lines_;  // of a row
  int64_t each_;
  int64_t row_ = 0;
  int64_t line_ = 0;
};

}  // namespace hilbert_ring
