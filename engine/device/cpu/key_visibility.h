// The keys of a tile that each query row sees, in one form for every mask.
//
// A row sees the keys whose rank is below its limit. Under kDiagonal a key's rank is its index, and
// a row sees no key before its start.
// Under kPositions it is the number of keys in the tile at smaller positions, and a row's limit the
// number of keys at positions up to its own: small numbers, exact in float32 at any positions.
#pragma once

#include <cstdint>

#include "engine/device/attention.h"

namespace hilbert_ring {

inline constexpr int64_t kMaxKeyTile = 128;

// Keys [begin, begin + count) of one batch of a task, 0 < count <= kMaxKeyTile.
struct KeyRange {
  int64_t batch = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// Query rows [first, last] of one batch of a task.
struct RowRange {
  int64_t batch = 0;
  int64_t first = 0;
  int64_t last = 0;
};

enum class Visible { kNothing, kSome, kEverything };

class KeyVisibility {
 public:
  // The task outlives this.
  KeyVisibility(const AttentionTask& task, const RowRange& rows);

  // No row of the range sees keys before the first, or from the second on.
  int64_t key_begin() const { return key_begin_; }
  int64_t key_end() const { return key_end_; }

  // Returns which keys the range's rows see. Ranks, limits and starts are valid after kSome.
  Visible See(const KeyRange& keys);

  const float* ranks() const { return ranks_; }  // [count]

  // The limit of a row of the range, in [0, count].
  int64_t Limit(int64_t row) const;

  // The start of a row of the range, in [0, count].
  int64_t Start(int64_t row) const;

  // Returns whether a row of the range has a start after the first key.
  bool HasStarts() const { return Start(rows_.last) > 0; }

  // Returns whether keys from a row's limit on, in order of index, are hidden from it.
  bool RanksAreIndices() const { return task_.mask == Mask::kDiagonal; }

 private:
  int64_t QueryPosition(int64_t row) const;

  const AttentionTask& task_;
  RowRange rows_;
  // Row i sees keys i + lower_ to i + upper_, clamped to values that matter.
  int64_t lower_ = 0, upper_ = 0;
  int64_t key_begin_ = 0;
  int64_t key_end_ = 0;
  int64_t least_query_ = 0;  // positions of the range's rows
  int64_t greatest_query_ = 0;
  KeyRange keys_;
  int64_t positions_[kMaxKeyTile];  // of the keys, ascending after kSome
  float ranks_[kMaxKeyTile];
};

}  // namespace hilbert_ring
