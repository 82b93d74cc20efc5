// Products of tiles, made step by step between other work.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_AMX_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_AMX_PRODUCTS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_AMX_PRODUCTS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_AMX_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "engine/device/cpu/amx_tiles-inl.h"
#include "engine/device/cpu/tile_layout.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

// c (+)= a . b for the 1 or 2 vectors of lanes of a block. A step is one product of 32 rows (at the
// end: of 16) and all lanes over 32 terms. Sums stay in tiles over all terms, and a step of its own
// stores them: stores that wait for their tiles would delay later work.
struct TileProduct {
  const float* a = nullptr;  // [rows, padded][a_stride], pairs
  int64_t a_stride = 0;      // in floats
  int64_t rows = 0;          // a multiple of 16, or of 8 from 16 on, padded by ValueTileRow
  int64_t terms = 0;         // in steps of 32
  const float* b = nullptr;  // [terms * 16][lanes], pairs
  float* c = nullptr;        // [rows][lanes]
  bool adds = false;         // to the numbers in c; else c is overwritten
  int64_t vectors = 0;

  int64_t row = 0;   // of the next step
  int64_t term = 0;  // of the next step

  HWY_INLINE bool Done() const { return row >= rows; }

  int64_t Steps() const {
    const int64_t pairs = rows / (2 * kTileRows), rest = rows % (2 * kTileRows);
    return (terms + 1) * (pairs + (rest + kTileRows - 1) / kTileRows);
  }

  template <typename Tiles>
  HWY_INLINE void Step(Tiles& tiles) {
    if (rows - row >= 2 * kTileRows) {
      vectors == 2 ? StepOf<2, 2>(tiles) : StepOf<2, 1>(tiles);
    } else {
      vectors == 2 ? StepOf<1, 2>(tiles) : StepOf<1, 1>(tiles);
    }
  }

 private:
  // Tiles 0 to 3 are sums, 4 and 5 rows of `a`, 6 and 7 lanes of `b`.
  template <int kRows, int kVectors, typename Tiles>
  HWY_INLINE void StepOf(Tiles& tiles) {
    const int64_t n = hn::Lanes(LaneTag());
    const int64_t lanes = kVectors * n;
    const int64_t lanes_bytes = lanes * sizeof(float);
    const int64_t a_bytes = a_stride * sizeof(float);
    const int64_t first = std::min(row, rows - kTileRows);
    float* sums = c + first * lanes;
    float* sums1 = sums + kTileRows * lanes;
    if (term == terms) {
      tiles.template Store<0>(sums, lanes_bytes);
      if (kVectors > 1) tiles.template Store<1>(sums + n, lanes_bytes);
      if (kRows > 1) tiles.template Store<2>(sums1, lanes_bytes);
      if (kRows > 1 && kVectors > 1) tiles.template Store<3>(sums1 + n, lanes_bytes);
      term = 0;
      row += kRows * kTileRows;
      return;
    }
    if (term == 0) {
      if (adds) {
        tiles.template Load<0>(sums, lanes_bytes);
        if (kVectors > 1) tiles.template Load<1>(sums + n, lanes_bytes);
        if (kRows > 1) tiles.template Load<2>(sums1, lanes_bytes);
        if (kRows > 1 && kVectors > 1) tiles.template Load<3>(sums1 + n, lanes_bytes);
      } else {
        tiles.template Zero<0>();
        if (kVectors > 1) tiles.template Zero<1>();
        if (kRows > 1) tiles.template Zero<2>();
        if (kRows > 1 && kVectors > 1) tiles.template Zero<3>();
      }
    }
    const float* rows_at = a + row * a_stride + term * kTilePairs;
    const float* lanes_at = b + term * kTilePairs * lanes;
    tiles.template Load<6>(lanes_at, lanes_bytes);
    tiles.template Load<4, true>(rows_at, a_bytes);
    tiles.template MultiplyAdd<0, 4, 6>();
    if (kVectors > 1) {
      tiles.template Load<7>(lanes_at + n, lanes_bytes);
      tiles.template MultiplyAdd<1, 4, 7>();
    }
    if (kRows > 1) {
      tiles.template Load<5, true>(rows_at + kTileRows * a_stride, a_bytes);
      tiles.template MultiplyAdd<2, 5, 6>();
      if (kVectors > 1) tiles.template MultiplyAdd<3, 5, 7>();
    }
    ++term;
  }
};

template <typename Tiles>
class TileProducts {
 public:
  explicit TileProducts(Tiles& tiles) : tiles_(tiles) {}

  void Add(const TileProduct& product) {
    if (product.Done()) return;
    products_[count_++] = product;
    steps_ += product.Steps();
  }

  int64_t steps() const { return steps_; }

  HWY_INLINE void Step() {
    if (at_ == count_) return;
    products_[at_].Step(tiles_);
    at_ += products_[at_].Done() ? 1 : 0;
  }

  void Finish() {
    while (at_ < count_) Step();
  }

 private:
  Tiles& tiles_;
  TileProduct products_[2];
  int count_ = 0;
  int at_ = 0;
  int64_t steps_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_AMX_PRODUCTS_INL_H_
