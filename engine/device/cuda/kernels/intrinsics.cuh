// The machine's instructions that kernels use, one function each. Kernels use no others, so the
// same source also runs in an emulation on the host.
//
// Fragments of matrix products have the layout of PTX's mma.m16n8k16: thread t of a warp holds rows
// t / 4 and t / 4 + 8 of the 16 x 8 sums, columns 2 (t % 4) and the next.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace hilbert_ring::cuda {

using BFloat16 = __nv_bfloat16;
using Float16 = __half;

__device__ __forceinline__ float ToFloat(BFloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float ToFloat(Float16 value) { return __half2float(value); }

// The block's dynamic shared memory, aligned to 1024 bytes.
__device__ __forceinline__ char* SharedMemory() {
  extern __shared__ __align__(1024) char hilbert_ring_shared[];
  return hilbert_ring_shared;
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Copies 16 bytes from global to shared memory, or 16 zeros unless `read`: then `global` may be any
// address. Both are aligned to 16 bytes. Visible after CopyAsyncWait, to others after a barrier.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(read ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CopyAsyncWait() {
  asm volatile("cp.async.wait_all;\n" ::: "memory");
}

// Loads four 8 x 8 matrices of 16-bit elements. Thread t gives the address of row t % 8 of matrix t
// / 8, aligned to 16 bytes, and receives row t / 4, columns 2 (t % 4) and the next, of each matrix.
__device__ __forceinline__ void LoadMatrices(uint32_t (&matrices)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(SharedAddress(shared_row))
               : "memory");
}

__device__ __forceinline__ void LoadTransposed(uint32_t (&matrices)[4], const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(SharedAddress(shared_row))
               : "memory");
}

// sums += a * b of a 16 x 16 and a 16 x 8 matrix.
template <typename T>
__device__ __forceinline__ void MultiplyAdd(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1);

template <>
__device__ __forceinline__ void MultiplyAdd<BFloat16>(float (&sums)[4], const uint32_t (&a)[4],
                                                      uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void MultiplyAdd<Float16>(float (&sums)[4], const uint32_t (&a)[4],
                                                     uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to nearest even, the first in the lower half.
template <typename T>
__device__ __forceinline__ uint32_t PackPair(float first, float second);

template <>
__device__ __forceinline__ uint32_t PackPair<BFloat16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <>
__device__ __forceinline__ uint32_t PackPair<Float16>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// 2^x to 2 units in the last place; results below 2^-126 are 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// Returns the reciprocal to a unit in the last place; x: normal, below 2^126.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// The value of the thread whose number in the warp is this one's xor `mask`.
__device__ __forceinline__ float FromPartner(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// The number, equal in all threads of the warp, in a form that the compiler knows to be uniform.
__device__ __forceinline__ int UniformOfWarp(int value) {
  return __shfl_sync(0xffffffffu, value, 0);
}

__device__ __forceinline__ bool AnyOfWarp(bool value) { return __any_sync(0xffffffffu, value); }

}  // namespace hilbert_ring::cuda
