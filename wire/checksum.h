// CRC32C (Castagnoli), by the processor's instruction if it has one.
#pragma once

#include <cstdint>
#include <string_view>

namespace hilbert_ring::wire {

// `before`: checksum of the bytes before these; 0 at the start.
uint32_t Crc32c(std::string_view bytes, uint32_t before = 0);

}  // namespace hilbert_ring::wire
