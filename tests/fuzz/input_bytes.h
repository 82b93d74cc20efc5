// Values from a fuzzer's bytes, front to back. Past the end everything is zero: each input is
// valid, and a change of a byte changes one value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/fuzz/target.h"

namespace hilbert_ring::fuzz {

class InputBytes {
 public:
  explicit InputBytes(Bytes bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }

  bool Flag() { return (Byte() & 1) != 0; }

  // 0 to bound - 1, from a byte
  int Below(int bound) { return Byte() % bound; }

  // A small number, a number around a power of two, or any number; of either sign.
  int64_t Integer() {
    const uint8_t kind = Byte();
    if (kind < 192) return kind;
    if (kind < 224) return Byte() | (Byte() << 8);
    if (kind < 240) {
      const int bits = Byte() & 63;
      return static_cast<int64_t>((uint64_t{1} << bits) + Byte() - 128);
    }
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= uint64_t{Byte()} << (8 * i);
    return static_cast<int64_t>(bits);
  }

  // The next `count` bytes, or fewer at the end.
  Bytes Take(size_t count) {
    const Bytes taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  std::string Text(size_t count) {
    const Bytes taken = Take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  Bytes Rest() { return Take(rest_.size()); }

 private:
  Bytes rest_;
};

}  // namespace hilbert_ring::fuzz
