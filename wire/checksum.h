// CRC32C (Castagnoli), by the processor's instruction where it has one.
#pragma once

#include <cstdint>
#include <string_view>

namespace hilbert_ring::wire {

uint32_t Crc32c(std::string_view bytes);

}  // namespace hilbert_ring::wire
