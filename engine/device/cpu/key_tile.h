// A step of attention: a block of lanes, and the tile of keys and values that it meets.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device/cpu/coming_rows.h"
#include "engine/device/score_unit.h"

namespace hilbert_ring {

// A place is a position, high and low of SplitPosition, or coordinates, of which a third may be 0.
inline constexpr int kPlaceParts = 3;

// Slopes and places of a block's lanes.
struct LaneDistances {
  const float* slopes = nullptr;          // [lanes]; null: no bias
  const float* places[kPlaceParts] = {};  // [lanes] each
};

// Changes of the scores of a tile.
struct TileChange {
  float scale;                       // > 0
  float softcap;                     // 0: none
  int axes;                          // 0: places are positions
  const float* places[kPlaceParts];  // [count] each, of the keys; read with slopes alone
};

// Pointers to a lane block's parts of the scratch; lanes = vectors * Lanes(LaneTag). Queries, keys,
// values and weights are elements of the product, each kTerms numbers.
struct LaneBlock {
  const float* queries;  // [RowElements(head_dim)][lanes]
  const float* limits;   // [lanes]
  const float* starts;   // [lanes], the first seen keys of the tile; null: no key is before them
  LaneDistances distances;
  float* row_max;      // [lanes], of scores times the unit's factor
  float* sum;          // [lanes]
  float* rounded_sum;  // [lanes]
  float* out;          // [value_dim][lanes]
  float* scores;       // [kKeyTile][lanes], then weights [kKeyTile / kTerms][lanes]
  float* rescale;      // [lanes]
  float* non_finite;   // [value_dim][lanes]
};

// A value that is not finite: element x of key j of a tile.
struct NonFiniteValue {
  int64_t j;
  int64_t x;
  float value;
};

struct KeyTile {
  const float* keys;    // [kKeyTile][RowElements(head_dim)], zero rows up to a multiple of kKeyRows
  const float* values;  // in the product's layout: packed_keys-inl.h
  const float* ranks;   // [count]; null: all lanes see all keys
  int64_t count;
  int64_t head_dim;
  int64_t value_dim;
  float scale;                                 // > 0; of scores that are changed: 1
  ScoreUnit unit;                              // of the scale
  const TileChange* change;                    // null: none
  int64_t halvings;                            // weights are 2^-halvings of themselves
  bool exact_scores;                           // no product of a score may be treated as 0
  std::span<const NonFiniteValue> non_finite;  // `values` has 0 in their place
  ComingRows coming;                           // prefetched while scores are computed
};

}  // namespace hilbert_ring
