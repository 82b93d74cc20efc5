// What a GPU's block of rows takes of its memory.
#pragma once

#include <cstdint>

#include "engine/model/files/encoder_plan.h"

namespace hilbert_ring {

// What a product's algorithm may take.
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

// Buffers of a block, which a GPU has once.
struct DeviceBlockBytes {
  int64_t operand = 0;  // what a product reads
  int64_t result = 0;   // float32 that it writes
  int64_t workspace = 0;
  int64_t places = 0, coords = 0, frequencies = 0;  // of tiles that are placed
  int64_t sums = 0;                                 // of a slide that is pooled
  int64_t total() const {
    return operand + result + workspace + places + coords + frequencies + sums;
  }
};

DeviceBlockBytes DeviceBlockBytesOf(const EncoderConfig& config, const RowBlocks& blocks,
                                    DataType products);

}  // namespace hilbert_ring
