#include "engine/device/cuda/kernels/kernels.cuh"
#include "engine/device/cuda/kernels/tensor_map_encoder.h"

namespace hilbert_ring::cuda {
namespace {

// The driver's function serves all devices of the process.
struct Encoder {
  TensorMapEncoder encoder;
  cudaError_t error = encoder.Prepare();
};

const Encoder& TheEncoder() {
  static const Encoder encoder;
  return encoder;
}

}  // namespace

cudaError_t PrepareTensorMaps() { return TheEncoder().error; }

cudaError_t MakeTensorMaps(std::span<const AttentionWork> works, TensorMap* maps) {
  cudaError_t error = TheEncoder().error;
  for (size_t i = 0; i < works.size() && error == cudaSuccess; ++i) {
    error = TheEncoder().encoder.Make(works[i], maps[2 * i], maps[2 * i + 1]);
  }
  return error;
}

}  // namespace hilbert_ring::cuda
