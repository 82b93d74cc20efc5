// Copies of boxes by the bulk tensor engine (include/engine/device/cuda/kernels/pipeline.cuh).
//
// They arrive as late as the machine allows: when all threads of the block wait. Their order is not
// promised: in every other block the latest comes first. A copy's place is undefined from its start
// until then, and products that read it fail.
#pragma once

#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::emulation {

// Lets the thread use the map.
void AcquireTensorMap(const cuda::TensorMap* map);

// Starts a copy of the map's box at these coordinates to `shared`; `barrier` counts its bytes.
void CopyBoxLater(void* shared, const cuda::TensorMap* map, void* barrier, int x, int row,
                  int batch);

// Completes one copy; returns false if no copy is in progress.
bool BringBox();

// Hides places of copies in progress from products.
void HideBoxesUnderWay();
void CheckBoxesAtEnd();

}  // namespace hilbert_ring::emulation
