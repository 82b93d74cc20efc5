// Changes of the scores of one lane block and key tile before their softmax.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_SCORE_CHANGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_SCORE_CHANGE_INL_H_
#undef HILBERT_RING_DEVICE_CPU_SCORE_CHANGE_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_SCORE_CHANGE_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "engine/device/cpu/distances.h"
#include "engine/device/cpu/key_tile.h"
#include "engine/device/cpu/product-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline void CapScores(const LaneBlock& block, const KeyTile& tile, int64_t lanes) {
  const LaneTag d;
  const auto scale = hn::Set(d, tile.change->scale);
  const auto cap = hn::Set(d, tile.change->softcap);
  for (int64_t i = 0; i < tile.count * lanes; i += hn::Lanes(d)) {
    const auto score = hn::Mul(hn::Load(d, block.scores + i), scale);
    hn::Store(hn::Mul(cap, hn::CallTanh(d, hn::Div(score, cap))), d, block.scores + i);
  }
}

// scale: of scores that are not scaled yet; 1 for capped scores.
inline void AddBiases(const LaneBlock& block, const KeyTile& tile, int64_t lanes, float scale) {
  const LaneTag d;
  const auto factor = hn::Set(d, scale);
  const auto unit = hn::Set(d, kDistanceUnit);
  for (int64_t b = 0; b < lanes; b += hn::Lanes(d)) {
    const auto slope = hn::Load(d, block.distances.slopes + b);
    const auto high = hn::Load(d, block.distances.high + b);
    const auto low = hn::Load(d, block.distances.low + b);
    for (int64_t j = 0; j < tile.count; ++j) {
      const auto ahead = hn::Sub(hn::Set(d, tile.change->high[j]), high);
      const auto distance =
          hn::Abs(hn::MulAdd(ahead, unit, hn::Sub(hn::Set(d, tile.change->low[j]), low)));
      float* at = block.scores + j * lanes + b;
      const auto score = hn::Mul(hn::Load(d, at), factor);
      hn::Store(hn::NegMulAdd(slope, distance, score), d, at);
    }
  }
}

inline void HideStarts(const LaneBlock& block, const KeyTile& tile, int64_t lanes) {
  const LaneTag d;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t b = 0; b < lanes; b += hn::Lanes(d)) {
    const auto start = hn::Load(d, block.starts + b);
    for (int64_t j = 0; j < tile.count; ++j) {
      float* at = block.scores + j * lanes + b;
      const auto early = hn::Lt(hn::Set(d, static_cast<float>(j)), start);
      hn::Store(hn::IfThenElse(early, hidden, hn::Load(d, at)), d, at);
    }
  }
}

// Caps and biases scores, and hides the keys before each lane's first.
inline void ChangeScores(const LaneBlock& block, const KeyTile& tile, int64_t lanes) {
  if (tile.change != nullptr) {
    const bool caps = tile.change->softcap > 0;
    if (caps) CapScores(block, tile, lanes);
    if (block.distances.slopes != nullptr) {
      AddBiases(block, tile, lanes, caps ? 1.0f : tile.change->scale);
    }
  }
  if (block.starts != nullptr) HideStarts(block, tile, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_SCORE_CHANGE_INL_H_
