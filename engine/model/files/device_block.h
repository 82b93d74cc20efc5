// Sizes of a GPU's buffers for one block of rows. Plan and device take the same sizes.
#pragma once

#include <cstdint>

#include "engine/model/files/encoder_plan.h"

namespace hilbert_ring {

inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

struct DeviceBlockBytes {
  int64_t operand = 0;  // input of a product
  int64_t result = 0;   // float32 output of a product
  int64_t workspace = 0;
  int64_t places = 0, coords = 0, frequencies = 0;  // to place tiles
  int64_t sums = 0;                                 // to pool a slide
  int64_t total() const {
    return operand + result + workspace + places + coords + frequencies + sums;
  }
};

DeviceBlockBytes DeviceBlockBytesOf(const EncoderConfig& config, const RowBlocks& blocks,
                                    DataType products);

}  // namespace hilbert_ring
