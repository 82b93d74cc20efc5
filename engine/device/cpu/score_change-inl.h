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

// The distance of positions, whose parts are `high` and `low` apart.
template <typename V>
HWY_INLINE V DistanceOfPositions(V high, V low, V /*none*/) {
  return hn::Abs(hn::MulAdd(high, hn::Set(LaneTag(), kDistanceUnit), low));
}

// The distance of coordinates that are x, y and z apart.
template <typename V>
HWY_INLINE V DistanceOfCoordinates(V x, V y, V z) {
  const auto square = hn::MulAdd(x, x, hn::MulAdd(y, y, hn::Mul(z, z)));
  return hn::IfThenZeroElse(hn::IsNaN(square), hn::Sqrt(square));
}

// scale: of scores that are not scaled yet; 1 for capped scores. distance: of the differences of
// the places' parts.
template <typename Distance>
HWY_INLINE void AddBiases(const LaneBlock& block, const KeyTile& tile, int64_t lanes, float scale,
                          const Distance& distance_of) {
  const LaneTag d;
  const auto factor = hn::Set(d, scale);
  for (int64_t b = 0; b < lanes; b += hn::Lanes(d)) {
    const auto slope = hn::Load(d, block.distances.slopes + b);
    const auto lane_0 = hn::Load(d, block.distances.places[0] + b);
    const auto lane_1 = hn::Load(d, block.distances.places[1] + b);
    const auto lane_2 = hn::Load(d, block.distances.places[2] + b);
    for (int64_t j = 0; j < tile.count; ++j) {
      const auto distance = distance_of(hn::Sub(hn::Set(d, tile.change->places[0][j]), lane_0),
                                        hn::Sub(hn::Set(d, tile.change->places[1][j]), lane_1),
                                        hn::Sub(hn::Set(d, tile.change->places[2][j]), lane_2));
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
      const float scale = caps ? 1.0f : tile.change->scale;
      if (tile.change->axes == 0) {
        AddBiases(block, tile, lanes, scale, [](auto high, auto low, auto none) HWY_ATTR {
          return DistanceOfPositions(high, low, none);
        });
      } else {
        AddBiases(block, tile, lanes, scale,
                  [](auto x, auto y, auto z) HWY_ATTR { return DistanceOfCoordinates(x, y, z); });
      }
    }
  }
  if (block.starts != nullptr) HideStarts(block, tile, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_SCORE_CHANGE_INL_H_
