// Conversions between float32 and 16-bit types, to nearest even. Float16 overflows to infinity.
#pragma once

#include <cstdint>
#include <span>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);
float Float16ToFloat(uint16_t bits);
uint16_t FloatToFloat16(float value);

// Element `index` of an array of `dtype`, which may be unaligned.
float LoadElement(DataType dtype, const void* data, int64_t index);
void StoreElement(DataType dtype, void* data, int64_t index, float value);

void LoadElements(DataType dtype, const void* data, std::span<double> values);

}  // namespace hilbert_ring
