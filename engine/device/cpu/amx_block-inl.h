// Attention of lane blocks by tiles of AMX.
//
// Tiles and vectors work at the same time: while a block's scores become weights, tiles compute the
// next block's scores and the previous block's output, a step after every few vectors.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_AMX_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_AMX_BLOCK_INL_H_
#undef HILBERT_RING_DEVICE_CPU_AMX_BLOCK_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_AMX_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <optional>

#include "engine/device/cpu/amx_products-inl.h"
#include "engine/device/cpu/amx_tiles-inl.h"
#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/coming_rows.h"
#include "engine/device/cpu/key_tile.h"
#include "engine/device/cpu/lane_block-inl.h"
#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/score_change-inl.h"
#include "engine/device/cpu/tile_layout.h"
#include "engine/device/cpu/weights-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

template <typename TheTiles>
struct TilesProduct : PairProduct {
  using Tiles = TheTiles;
  static constexpr int64_t kBlockVectors = 2;  // 2 x 2 tiles of sums and 4 of their factors
  static constexpr int64_t kRowElements = kTilePairs;
  static constexpr int64_t kKeyRows = 2 * kTileRows;
  static constexpr int64_t kWeightRows = kTilePairs;
  static constexpr bool kTiles = true;

  static bool Takes(const AttentionTask& task) { return task.value_dim >= kTileRows; }
};

// Scores of a block in the tiles' order of sums, with subnormal numbers.
template <int kVectors>
void ExactTileScores(const LaneBlock& block, const KeyTile& tile) {
  const LaneTag d;
  const int64_t n = hn::Lanes(d);
  const int64_t lanes = kVectors * n;
  const int64_t dim = hwy::DivCeil(tile.head_dim, 2 * kTilePairs) * kTilePairs;
  for (int64_t j = 0; j < tile.count; ++j) {
    for (int64_t b = 0; b < lanes; b += n) {
      auto score = hn::Zero(d);
      for (int64_t begin = 0; begin < dim; begin += kTilePairs) {
        auto even = hn::Zero(d), odd = hn::Zero(d);
        for (int64_t x = begin; x < begin + kTilePairs; ++x) {
          const auto key = hn::Set(d, tile.keys[j * dim + x]);
          const auto query = hn::Load(d, block.queries + x * lanes + b);
          even = hn::MulAdd(LowerOf(key), LowerOf(query), even);
          odd = hn::MulAdd(UpperOf(key), UpperOf(query), odd);
        }
        score = hn::Add(score, hn::Add(even, odd));
      }
      hn::Store(score, d, block.scores + j * lanes + b);
    }
  }
}

template <typename Tiles>
class BlockSequence<TilesProduct<Tiles>> {
 public:
  explicit BlockSequence(AttentionScratch& scratch) : scores_(scratch.scores) {}

  void Next(const LaneBlock& block, int64_t vectors, const KeyTile& tile) {
    Stage next{block, vectors, tile};
    next.block.scores = scores_ + count_++ % 3 * kScores;
    TileProducts<Tiles> products(tiles_);
    if (before_) products.Add(Outputs(*before_));
    if (!tile.exact_scores) {
      products.Add(Scores(next));
    } else if (vectors == 2) {
      ExactTileScores<2>(next.block, tile);
    } else {
      ExactTileScores<1>(next.block, tile);
    }
    Weigh(products);
    before_ = now_;
    now_ = next;
  }

  void End() {
    for (; now_ || before_; before_ = now_, now_.reset()) {
      TileProducts<Tiles> products(tiles_);
      if (before_) products.Add(Outputs(*before_));
      Weigh(products);
    }
  }

 private:
  using Product = TilesProduct<Tiles>;
  static constexpr int64_t kScores = kMaxScores / 3;  // of a block

  struct Stage {
    LaneBlock block;
    int64_t vectors;
    KeyTile tile;
  };

  static TileProduct Scores(const Stage& stage) {
    const int64_t dim = RowElements<Product>(stage.tile.head_dim);
    return {.a = stage.tile.keys,
            .a_stride = dim,
            .rows = hwy::DivCeil(stage.tile.count, Product::kKeyRows) * Product::kKeyRows,
            .terms = dim / kTilePairs,
            .b = stage.block.queries,
            .c = stage.block.scores,
            .vectors = stage.vectors};
  }

  static TileProduct Outputs(const Stage& stage) {
    return {.a = stage.tile.values,
            .a_stride = Product::kKeyTile / 2,
            .rows = stage.tile.value_dim,
            .terms = hwy::DivCeil(stage.tile.count, 2 * kTilePairs),
            .b = stage.block.scores,
            .c = stage.block.out,
            .adds = true,
            .vectors = stage.vectors};
  }

  // Spreads the steps of products, and prefetches of coming rows, over `calls`.
  class StepsBetween {
   public:
    StepsBetween(TileProducts<Tiles>& products, const ComingRows& coming, int64_t calls)
        : products_(products), coming_(coming, calls), steps_(products.steps()), calls_(calls) {}

    HWY_INLINE void operator()() {
      coming_.Next();
      for (due_ += steps_; due_ >= calls_; due_ -= calls_) products_.Step();
    }

   private:
    TileProducts<Tiles>& products_;
    ComingLines coming_;
    const int64_t steps_;
    const int64_t calls_;
    int64_t due_ = 0;
  };

  void Weigh(TileProducts<Tiles>& products) {
    if (now_) {
      now_->vectors == 2 ? WeighVectors<2>(products) : WeighVectors<1>(products);
    }
    products.Finish();
  }

  template <int kVectors>
  void WeighVectors(TileProducts<Tiles>& products) {
    const LaneBlock block = now_->block;
    const KeyTile& tile = now_->tile;
    ChangeScores(block, tile, kVectors * hn::Lanes(LaneTag()));
    if (!tile.non_finite.empty()) AddNonFiniteValues(block, tile, kVectors * hn::Lanes(LaneTag()));
    // All steps between the pairs of the first vector: over both it was 2 % slower.
    const int64_t pairs = tile.count / 2;
    Weights<Product, kVectors>(block, tile, StepsBetween(products, tile.coming, pairs));
    Rescale<kVectors>(block, tile.value_dim);
  }

  template <int kVectors>
  static void Rescale(const LaneBlock& block, int64_t value_dim) {
    const LaneTag d;
    const int64_t n = hn::Lanes(d);
    for (int64_t b = 0; b < kVectors * n; b += n) {
      const auto rescale = hn::Load(d, block.rescale + b);
      if (hn::AllTrue(d, hn::Eq(rescale, hn::Set(d, 1.0f)))) continue;
      for (int64_t x = 0; x < value_dim; ++x) {
        float* at = block.out + x * kVectors * n + b;
        hn::Store(hn::Mul(hn::Load(d, at), rescale), d, at);
      }
    }
  }

  Tiles tiles_;
  float* const scores_;
  int64_t count_ = 0;
  std::optional<Stage> before_;  // its weights are ready
  std::optional<Stage> now_;     // its scores are ready
};

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_AMX_BLOCK_INL_H_
