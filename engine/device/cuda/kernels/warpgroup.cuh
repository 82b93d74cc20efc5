// Hopper's asynchronous products of a warpgroup: four warps, of which the first is a multiple of
// four. Compute capability 9.0 alone (sm_90a). A stand-in of this header runs on the host.
//
// Shared matrices lie in panels (attention_panels.cuh). Sums are fragments (intrinsics.cuh): warp w
// of the group holds rows 16 w to 16 w + 15.
//
// A product owns its sums, left fragments and shared memory from WarpgroupBegin until WarpgroupWait
// for its batch. The compiler does not know: pass registers to WarpgroupHold before and after.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/shared_matrix.cuh"

namespace hilbert_ring::cuda {

__device__ __forceinline__ SharedMatrix MatrixAt(const void* panel) {
  return PanelAt(SharedAddress(panel));
}

// Products after the next barrier see the thread's writes to shared memory and its awaited copies.
__device__ __forceinline__ void PublishToProducts() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Begins a batch of products: registers are as the threads left them.
__device__ __forceinline__ void WarpgroupBegin() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void WarpgroupCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits until at most the kLeft latest batches are unfinished.
template <int kLeft>
__device__ __forceinline__ void WarpgroupWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kLeft) : "memory");
}

// Keeps the compiler from moving reads and writes of the registers across this point.
__device__ __forceinline__ void WarpgroupHold(float& sum) {
  asm volatile("" : "+f"(sum)::"memory");
}
__device__ __forceinline__ void WarpgroupHold(uint32_t& pair) {
  asm volatile("" : "+r"(pair)::"memory");
}
template <typename Register, int kTiles>
__device__ __forceinline__ void WarpgroupHold(Register (&registers)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) WarpgroupHold(registers[n][e]);
  }
}

// Both products in PTX, of either type.
#define HILBERT_RING_SUMS_1(s, n) "+f"(s[n][0]), "+f"(s[n][1]), "+f"(s[n][2]), "+f"(s[n][3])
#define HILBERT_RING_SUMS_4(s, n)                                                          \
  HILBERT_RING_SUMS_1(s, n), HILBERT_RING_SUMS_1(s, n + 1), HILBERT_RING_SUMS_1(s, n + 2), \
      HILBERT_RING_SUMS_1(s, n + 3)
#define HILBERT_RING_SUMS_8(s, n) HILBERT_RING_SUMS_4(s, n), HILBERT_RING_SUMS_4(s, n + 4)

#define HILBERT_RING_MULTIPLY_ROWS(type)                                                  \
  asm volatile(                                                                           \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                                    \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                        \
      " {"                                                                                \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
      "%64, %65, add, 1, 1, 0, 0;\n}\n"                                                   \
      : HILBERT_RING_SUMS_8(sums, 0), HILBERT_RING_SUMS_8(sums, 8)                        \
      : "l"(a.descriptor), "l"(b.descriptor), "r"(static_cast<int>(add))                  \
      : "memory")

#define HILBERT_RING_MULTIPLY_COLUMNS(type)                                                        \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                         \
               " {"                                                                                \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
               "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"                                          \
               : HILBERT_RING_SUMS_8(sums, kFirst)                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor)                     \
               : "memory")

// sums [64, 128] = a [64, 16] x b^T, b [128, 16], both of shared rows; added to sums if `add`.
template <typename T>
__device__ __forceinline__ void MultiplyRows(float (&sums)[16][4], SharedMatrix a, SharedMatrix b,
                                             bool add) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    HILBERT_RING_MULTIPLY_ROWS("bf16");
  } else {
    HILBERT_RING_MULTIPLY_ROWS("f16");
  }
}

// Columns [8 kFirst, 8 kFirst + 64) of sums += a [64, 16] x b, b [16 shared rows, 64].
template <typename T, int kFirst, int kTiles>
__device__ __forceinline__ void MultiplyColumns(float (&sums)[kTiles][4], const uint32_t (&a)[4],
                                                SharedMatrix b) {
  static_assert(kFirst + 8 <= kTiles);
  if constexpr (std::is_same_v<T, BFloat16>) {
    HILBERT_RING_MULTIPLY_COLUMNS("bf16");
  } else {
    HILBERT_RING_MULTIPLY_COLUMNS("f16");
  }
}

#undef HILBERT_RING_MULTIPLY_COLUMNS
#undef HILBERT_RING_MULTIPLY_ROWS
#undef HILBERT_RING_SUMS_8
#undef HILBERT_RING_SUMS_4
#undef HILBERT_RING_SUMS_1

}  // namespace hilbert_ring::cuda
