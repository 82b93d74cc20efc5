// The two products of attention in tiles of AMX.
//
// A product of tiles is sums += a . b: a has 16 rows of 32 bfloat16, b 16 rows of 16 pairs of them,
// sums are 16 x 16 float32. Lanes are the columns:
//   scores:  rows are keys, as in memory; b is queries, pairs of dims by lane;
//   outputs: rows are value dims, 32 keys in each; b is weights, pairs of keys by lane.
// b and sums have the lane products' layout; only values are transposed.
#pragma once

#include <cstdint>

namespace hilbert_ring {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTilePairs = 16;  // in a row of a; rows of b

// The row of dim x in a packed tile of values. value_dim is a multiple of 8, at least 16. A
// remaining half tile of dims is the lower half of a tile, under zeros. 0 leaves the sums of the
// dims before alone.
inline int64_t ValueTileRow(int64_t value_dim, int64_t x) {
  const int64_t whole = value_dim / kTileRows * kTileRows;
  return x < whole ? x : x + kTileRows / 2;
}

}  // namespace hilbert_ring
