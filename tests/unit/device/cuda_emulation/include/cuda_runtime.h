// CUDA's language on the host: kernels are functions whose threads are fibers.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "tests/unit/device/cuda_emulation/block_runner.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

using std::max;
using std::min;

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_blocks = 1) : x(x_blocks) {}
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern thread_local uint3 threadIdx;
extern thread_local uint3 blockIdx;
extern thread_local dim3 blockDim;
extern thread_local dim3 gridDim;

inline float __int_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

inline void __syncthreads() { hilbert_ring::emulation::BlockBarrier(false); }
inline int __syncthreads_or(int vote) {
  return hilbert_ring::emulation::BlockBarrier(vote != 0) > 0 ? 1 : 0;
}
inline int __syncthreads_and(int vote) {
  return hilbert_ring::emulation::BlockBarrier(vote == 0) == 0 ? 1 : 0;
}
inline void __syncwarp() {
  char nothing = 0;
  hilbert_ring::emulation::WarpInstruction("syncwarp", &nothing, 1, &nothing, 1,
                                           [](hilbert_ring::emulation::WarpOperands&) {});
}

// Other system threads' blocks may count at the same time.
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <typename... Expected, typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Given&&... arguments) {
  if (!EmulatedKernelRuns()) return cudaSuccess;
  const std::tuple<Expected...> copied(static_cast<Expected>(arguments)...);
  for (unsigned block = 0; block < config->gridDim.x; ++block) {
    hilbert_ring::emulation::RunBlock(
        block, config->gridDim.x, static_cast<int>(config->blockDim.x), config->dynamicSmemBytes,
        [&] { std::apply(kernel, copied); });
  }
  return cudaSuccess;
}
// NOLINTEND(bugprone-reserved-identifier)
