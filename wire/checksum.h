// CRC32C (Castagnoli), by the processor's instruction where it has one.
#pragma once

#include <cstdint>
#include <string_view>

namespace hilbert_ring::wire {

// Of bytes that follow others, whose checksum is `before`; 0 for none.
uint32_t Crc32c(std::string_view bytes, uint32_t before = 0);

}  // namespace hilbert_ring::wire
