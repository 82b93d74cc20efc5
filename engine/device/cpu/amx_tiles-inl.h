// The eight tiles of AMX, by the instructions and by plain code.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_AMX_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_AMX_TILES_INL_H_
#undef HILBERT_RING_DEVICE_CPU_AMX_TILES_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_AMX_TILES_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/tile_layout.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

// Plain code, slow, on every machine. A tile has as many columns as a vector has lanes.
class EmulatedTiles {
 public:
  template <int kTile>
  void Zero() {
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }

  // Rows are `stride` bytes apart: 16 pairs in `a` tiles (kPairsInARow), else a vector's lanes.
  template <int kTile, bool kPairsInARow = false>
  void Load(const void* from, int64_t stride) {
    for (int64_t row = 0; row < kTileRows; ++row) {
      std::memcpy(tiles_[kTile][row], static_cast<const char*>(from) + row * stride,
                  sizeof(float) * (kPairsInARow ? kTilePairs : Columns()));
    }
  }

  template <int kTile>
  void Store(void* to, int64_t stride) const {
    for (int64_t row = 0; row < kTileRows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride, tiles_[kTile][row],
                  sizeof(float) * Columns());
    }
  }

  // sums += a . b, as Intel's manual defines TDPBF16PS. Each sum has two chains of fused products,
  // of the pairs' lower and upper halves, which are added to each other, then to the sum. Every
  // rounding is to nearest even, and subnormal numbers are 0, in operands and results.
  template <int kSums, int kA, int kB>
  void MultiplyAdd() {
    // All columns, used or not: loops of a constant length become vectors.
    double lower_b[kTilePairs][kTilePairs], upper_b[kTilePairs][kTilePairs];
    for (int64_t k = 0; k < kTilePairs; ++k) {
      for (int64_t n = 0; n < kTilePairs; ++n) {
        lower_b[k][n] = Flushed(Lower(tiles_[kB][k][n]));
        upper_b[k][n] = Flushed(Upper(tiles_[kB][k][n]));
      }
    }
    for (int64_t row = 0; row < kTileRows; ++row) {
      float even[kTilePairs] = {}, odd[kTilePairs] = {};
      for (int64_t k = 0; k < kTilePairs; ++k) {
        const double lower = Flushed(Lower(tiles_[kA][row][k]));
        const double upper = Flushed(Upper(tiles_[kA][row][k]));
        for (int64_t n = 0; n < kTilePairs; ++n) {
          even[n] = Rounded(lower * lower_b[k][n] + even[n]);
        }
        for (int64_t n = 0; n < kTilePairs; ++n) odd[n] = Rounded(upper * upper_b[k][n] + odd[n]);
      }
      for (int64_t n = 0; n < kTilePairs; ++n) {
        const double before = Flushed(std::bit_cast<float>(tiles_[kSums][row][n]));
        const double sum = Rounded(double{even[n]} + odd[n]);
        tiles_[kSums][row][n] = std::bit_cast<uint32_t>(Rounded(before + sum));
      }
    }
  }

 private:
  static constexpr double kLeastNormal = 0x1p-126;

  static int64_t Columns() { return hn::Lanes(LaneTag()); }
  static float Lower(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
  static float Upper(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

  static float Flushed(float x) {
    return std::abs(x) < static_cast<float>(kLeastNormal) ? std::copysign(0.0f, x) : x;
  }

  // Rounds a sum of two float32, or of one and a product of two bfloat16: in float64 rounding twice
  // equals rounding once. Results that are subnormal after rounding to 24 bits are 0.
  static float Rounded(double x) {
    const auto rounded = static_cast<float>(x);
    const float zero = std::copysign(0.0f, rounded);
    return std::abs(x) < kLeastNormal - 0x1p-151 ? zero : rounded;
  }

  uint32_t tiles_[8][kTileRows][kTilePairs] = {};
};

#if HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3
inline constexpr bool kHasTileInstructions = true;

// The instructions, which the process must be allowed (machine.h). Like AVX512_BF16's they treat
// subnormal numbers as 0 and round to nearest even, whatever MXCSR is. A thread has one object at a
// time. Assembly, because functions compiled without the extension cannot inline its intrinsics.
class InstructionTiles {
 public:
  InstructionTiles() {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~InstructionTiles() { asm volatile("tilerelease"); }
  InstructionTiles(const InstructionTiles&) = delete;
  InstructionTiles& operator=(const InstructionTiles&) = delete;

  template <int kTile>
  HWY_INLINE void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }

  template <int kTile, bool kPairsInARow = false>
  HWY_INLINE void Load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(from), "r"(stride) : "memory");
  }

  template <int kTile>
  HWY_INLINE void Store(void* to, int64_t stride) const {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(to), "r"(stride) : "memory");
  }

  template <int kSums, int kA, int kB>
  HWY_INLINE void MultiplyAdd() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};
#else
inline constexpr bool kHasTileInstructions = false;
using InstructionTiles = EmulatedTiles;
#endif

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_AMX_TILES_INL_H_
