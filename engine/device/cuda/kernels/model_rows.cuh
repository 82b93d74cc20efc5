// Launches of RowMath's kernels, which start on the stream; errors are CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/device/row_math.h"

namespace hilbert_ring::cuda {

cudaError_t LaunchRows(const RowsTask& task, cudaStream_t stream);
cudaError_t LaunchPlace(const PlaceTask& task, cudaStream_t stream);
cudaError_t LaunchSum(const SumTask& task, cudaStream_t stream);

}  // namespace hilbert_ring::cuda
