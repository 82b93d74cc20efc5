#include <algorithm>

#include "engine/device/cuda/kernels/attention_careful.cuh"
#include "engine/device/cuda/kernels/launch.cuh"

namespace hilbert_ring::cuda {
namespace {

constexpr int64_t kBlocksPerMultiprocessor = 8;  // most blocks usually have no work

template <typename Kernel>
cudaError_t Launch(const AttendLaunch& launch, int lanes, int multiprocessors,
                   cudaStream_t stream) {
  const int64_t parts = launch.tiles * ((lanes + Kernel::kLanes - 1) / Kernel::kLanes);
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(std::min(parts, kBlocksPerMultiprocessor * multiprocessors)));
  config.blockDim = dim3(Kernel::kThreads);
  config.dynamicSmemBytes = Kernel::kSharedBytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, AttendCarefully<Kernel>, launch.works, launch.count,
                            launch.notes, launch.tiles, lanes);
}

}  // namespace

cudaError_t LaunchCareful(NativeKernel kernel, const AttendLaunch& launch, int multiprocessors,
                          cudaStream_t stream) {
  const KernelTile tile = TileOf(kernel);
  if (tile.value_dim <= 64) return Launch<Careful<64>>(launch, tile.lanes, multiprocessors, stream);
  if (tile.value_dim <= 128) {
    return Launch<Careful<128>>(launch, tile.lanes, multiprocessors, stream);
  }
  return Launch<Careful<256>>(launch, tile.lanes, multiprocessors, stream);
}

}  // namespace hilbert_ring::cuda
