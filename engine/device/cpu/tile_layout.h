// How tiles of AMX hold the two products of attention.
//
// A product of tiles is sums += a . b: a has 16 rows of 32 bfloat16, b 16 rows of 16 pairs of them,
// sums are 16 x 16 float32. Vectors run over lanes here too, so that lanes are the columns:
//   scores:  rows are keys, as they lie in memory; b is queries, pairs of dims by lane;
//   outputs: rows are value dims, 32 keys in each; b is weights, pairs of keys by lane.
// Both b and both sums are what the lane products read and write; only values are turned.
#pragma once

#include <cstdint>

namespace hilbert_ring {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTilePairs = 16;  // of a row of a; rows of b

// Of a packed tile of values, the row that holds dim x. value_dim is a multiple of 8, at least 16:
// where half a tile of dims is left over it is the lower half of a tile whose upper half is zeros.
// Those rows belong to the dims before, whose sums 0 leaves alone.
inline int64_t ValueTileRow(int64_t value_dim, int64_t x) {
  const int64_t whole = value_dim / kTileRows * kTileRows;
  return x < whole ? x : x + kTileRows / 2;
}

}  // namespace hilbert_ring
