// Copies of boxes by the bulk tensor engine, for include/engine/device/cuda/kernels/pipeline.cuh.
//
// They arrive as late as the machine may let them: when all threads of the block wait. Which comes
// first is no promise: in every other block it is the latest. From the start of a copy until then,
// what lay in its place is gone, and products that read it fail.
#pragma once

#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::emulation {

// The thread may use the map.
void AcquireTensorMap(const cuda::TensorMap* map);

// Starts a copy of the map's box at these coordinates to `shared`; its bytes count for `barrier`.
void CopyBoxLater(void* shared, const cuda::TensorMap* map, void* barrier, int x, int row,
                  int batch);

// Lets one copy arrive; false where none is on its way.
bool BringBox();

// Products see that places of copies on their way hold nothing.
void HideBoxesUnderWay();
void CheckBoxesAtEnd();

}  // namespace hilbert_ring::emulation
