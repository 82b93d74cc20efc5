#include "wire/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace hilbert_ring::wire {

uint32_t Crc32c(std::string_view bytes, uint32_t before) {
  // crc32_iscsi takes an int as length, and does not invert the value itself.
  constexpr size_t kMost = size_t{1} << 30;
  uint32_t crc = ~before;
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kMost);
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())),
                      static_cast<int>(part), crc);
    bytes.remove_prefix(part);
  }
  return ~crc;
}

}  // namespace hilbert_ring::wire
