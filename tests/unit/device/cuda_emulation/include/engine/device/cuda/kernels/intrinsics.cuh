// The machine's instructions on the host, by the PTX ISA. Replaces the header of the same name.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/spec/numbers.h"
#include "tests/unit/device/cuda_emulation/block_runner.h"

namespace hilbert_ring::cuda {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

inline float ToFloat(BFloat16 value) { return BFloat16ToFloat(value.bits); }
inline float ToFloat(Float16 value) { return Float16ToFloat(value.bits); }

inline char* SharedMemory() { return reinterpret_cast<char*>(emulation::SharedBytes()); }

inline void CopyAsync16(void* shared, const void* global, bool read) {
  emulation::CopyLater(shared, read ? global : nullptr, 16);
}
inline void CopyAsyncWait() { emulation::AwaitCopies(); }

// Thread t's row is of matrix t / 8; register m of thread t is of matrix m.
inline void LoadMatrices(uint32_t (&matrices)[4], const void* shared_row) {
  emulation::WarpInstruction("ldmatrix", &shared_row, sizeof(shared_row), matrices, 16,
                             [](emulation::WarpOperands& warp) {
                               const uint16_t* rows[32];
                               for (int t = 0; t < 32; ++t) {
                                 std::memcpy(&rows[t], warp.in[t], sizeof(rows[t]));
                               }
                               for (int t = 0; t < 32; ++t) {
                                 uint16_t halves[8];
                                 for (int m = 0; m < 4; ++m) {
                                   halves[2 * m] = rows[8 * m + t / 4][2 * (t % 4)];
                                   halves[2 * m + 1] = rows[8 * m + t / 4][2 * (t % 4) + 1];
                                 }
                                 std::memcpy(warp.out[t], halves, sizeof(halves));
                               }
                             });
}

inline void LoadTransposed(uint32_t (&matrices)[4], const void* shared_row) {
  emulation::WarpInstruction("ldmatrix.trans", &shared_row, sizeof(shared_row), matrices, 16,
                             [](emulation::WarpOperands& warp) {
                               const uint16_t* rows[32];
                               for (int t = 0; t < 32; ++t) {
                                 std::memcpy(&rows[t], warp.in[t], sizeof(rows[t]));
                               }
                               for (int t = 0; t < 32; ++t) {
                                 uint16_t halves[8];
                                 for (int m = 0; m < 4; ++m) {
                                   halves[2 * m] = rows[8 * m + 2 * (t % 4)][t / 4];
                                   halves[2 * m + 1] = rows[8 * m + 2 * (t % 4) + 1][t / 4];
                                 }
                                 std::memcpy(warp.out[t], halves, sizeof(halves));
                               }
                             });
}

struct ProductOperands {
  float sums[4];
  uint32_t a[4];
  uint32_t b[2];
};

// The PTX ISA's layout of mma.m16n8k16, with g = t / 4 and c = t % 4. Element i of a thread's sums
// is row g + 8 (i / 2), column 2 c + i % 2; of a (8 halves) row g + 8 (i / 2 % 2), column 2 c + i %
// 2 + 8 (i / 4); of b (4 halves) row 2 c + i % 2 + 8 (i / 2), column g.
template <typename T>
void MultiplyWarp(emulation::WarpOperands& warp) {
  float a[16][16], b[16][8], sums[16][8];
  for (int t = 0; t < 32; ++t) {
    ProductOperands in;
    std::memcpy(&in, warp.in[t], sizeof(in));
    T left[8], right[4];
    std::memcpy(left, in.a, sizeof(left));
    std::memcpy(right, in.b, sizeof(right));
    const int g = t / 4, c = t % 4;
    for (int i = 0; i < 4; ++i) sums[g + 8 * (i / 2)][2 * c + i % 2] = in.sums[i];
    for (int i = 0; i < 8; ++i)
      a[g + 8 * (i / 2 % 2)][2 * c + i % 2 + 8 * (i / 4)] = ToFloat(left[i]);
    for (int i = 0; i < 4; ++i) b[2 * c + i % 2 + 8 * (i / 2)][g] = ToFloat(right[i]);
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) sums[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int t = 0; t < 32; ++t) {
    float out[4];
    for (int i = 0; i < 4; ++i) out[i] = sums[t / 4 + 8 * (i / 2)][2 * (t % 4) + i % 2];
    std::memcpy(warp.out[t], out, sizeof(out));
  }
}

template <typename T>
void MultiplyAdd(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  ProductOperands in{.b = {b0, b1}};
  std::memcpy(in.sums, sums, sizeof(sums));
  std::memcpy(in.a, a, sizeof(a));
  emulation::WarpInstruction("mma", &in, sizeof(in), sums, sizeof(sums), MultiplyWarp<T>);
}

template <typename T>
uint32_t PackPair(float first, float second);
template <>
inline uint32_t PackPair<BFloat16>(float first, float second) {
  return FloatToBFloat16(first) | uint32_t{FloatToBFloat16(second)} << 16;
}
template <>
inline uint32_t PackPair<Float16>(float first, float second) {
  return FloatToFloat16(first) | uint32_t{FloatToFloat16(second)} << 16;
}

inline float Exp2(float x) { return x < -126.0f ? 0.0f : std::exp2(x); }

struct Exchanged {
  float value;
  int mask;
};

inline float Reciprocal(float x) { return 1.0f / x; }

inline float FromPartner(float value, int mask) {
  const Exchanged in{value, mask};
  float out = 0;
  emulation::WarpInstruction("shfl.xor", &in, sizeof(in), &out, sizeof(out),
                             [](emulation::WarpOperands& warp) {
                               for (int t = 0; t < 32; ++t) {
                                 Exchanged own;
                                 std::memcpy(&own, warp.in[t], sizeof(own));
                                 std::memcpy(warp.out[t], warp.in[t ^ own.mask], sizeof(float));
                               }
                             });
  return out;
}

inline int UniformOfWarp(int value) {
  int out = 0;
  emulation::WarpInstruction("shfl.idx", &value, sizeof(value), &out, sizeof(out),
                             [](emulation::WarpOperands& warp) {
                               for (int t = 0; t < 32; ++t)
                                 std::memcpy(warp.out[t], warp.in[0], sizeof(int));
                             });
  return out;
}

inline bool AnyOfWarp(bool value) {
  bool out = false;
  emulation::WarpInstruction("vote.any", &value, sizeof(value), &out, sizeof(out),
                             [](emulation::WarpOperands& warp) {
                               bool any = false;
                               for (int t = 0; t < 32; ++t)
                                 any = any || warp.in[t][0] != std::byte{};
                               for (int t = 0; t < 32; ++t) std::memcpy(warp.out[t], &any, 1);
                             });
  return out;
}

}  // namespace hilbert_ring::cuda
