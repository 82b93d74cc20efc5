// The part of an attention kernel before its products: finds its tile and walks the key tiles that
// its rows see. attention_rows.cuh has the part after them.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

__device__ __forceinline__ float NegativeInfinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float Widen(int dtype, const void* data, int64_t at) {
  switch (dtype) {
    case kWorkBFloat16:
      return ToFloat(static_cast<const BFloat16*>(data)[at]);
    case kWorkFloat16:
      return ToFloat(static_cast<const Float16*>(data)[at]);
    default:
      return static_cast<const float*>(data)[at];
  }
}

// Up to kLanes lanes of one batch of a work.
struct QueryTile {
  const AttentionWork* work = nullptr;
  int64_t batch = 0;
  int64_t first_row = 0;
  int first_head = 0;  // of the first lane, in the first row
  int heads = 1;       // of the work
  int lanes = 0;

  // The lane's row, counted from the tile's first.
  __device__ int RowsBelow(int lane) const {
    return heads == 1 ? lane : (first_head + lane) / heads;
  }
  __device__ int64_t Row(int lane) const { return first_row + RowsBelow(lane); }
  __device__ int Head(int lane) const { return heads == 1 ? 0 : (first_head + lane) % heads; }
  // Elements from the data of a view or state to the lane's first.
  template <typename View>
  __device__ int64_t At(const View& view, int lane) const {
    return batch * view.batch + Row(lane) * view.row + Head(lane) * view.head;
  }
};

// Lanes [first, first + count) of a tile, or fewer at its end.
__device__ inline QueryTile PartOf(const QueryTile& tile, int first, int count) {
  QueryTile part = tile;
  part.first_row = tile.Row(first);
  part.first_head = tile.Head(first);
  part.lanes = min(count, tile.lanes - first);
  return part;
}

// Finds tile `tile` of a launch, whose works are sorted by their first tiles.
__device__ inline QueryTile FindTile(const AttentionWork* works, int count, int64_t tile,
                                     int lanes_per_tile) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (works[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const AttentionWork& work = works[low];
  const int64_t index = work.task_tile + tile - work.first_tile;
  QueryTile found{
      .work = &work, .batch = index / work.tiles_per_batch, .heads = static_cast<int>(work.heads)};
  int64_t of_batch = index % work.tiles_per_batch;
  // The last rows of a triangle see the most keys, so they begin first.
  if (work.mask == kWorkMaskDiagonal) of_batch = work.tiles_per_batch - 1 - of_batch;
  const int64_t first_lane = of_batch * lanes_per_tile;
  found.first_row = first_lane / work.heads;
  found.first_head = static_cast<int>(first_lane % work.heads);
  found.lanes =
      static_cast<int>(min(static_cast<int64_t>(lanes_per_tile), work.lanes - first_lane));
  return found;
}

// Keys [begin, begin + count) of a work, counted from its first. count is 0 at the end.
struct KeyTile {
  int begin = 0;
  int count = 0;
  bool all_seen = false;  // by every lane, and the tile is full
  int buffer = 0;         // of the keys' positions
};

inline constexpr int kWorkMaskAny = -1;  // KeyWalk reads the mask from the work

// Walks the key tiles that some lane of a query tile sees. All threads of a block make the same
// calls. It copies fields of the work, which kernels would otherwise read again at every step.
template <int kLanes, int kKeys, int kMask = kWorkMaskAny>
class KeyWalk {
 public:
  static constexpr int kSharedBytes = (kLanes + 2 * kKeys) * static_cast<int>(sizeof(int64_t));

  // shared: kSharedBytes, aligned to 8, used under kWorkMaskPositions alone.
  __device__ KeyWalk(const QueryTile& tile, char* shared) : mask_(tile.work->mask) {
    const AttentionWork& work = *tile.work;
    end_ = static_cast<int>(work.key_end - work.key_begin);
    if (Mask() == kWorkMaskDiagonal) {
      // Beyond these limits all lanes see every key, or no key.
      const int64_t first_hidden = tile.first_row + work.diagonal_shift + 1 - work.key_begin;
      first_hidden_ =
          static_cast<int>(max(int64_t{-kLanes}, min(first_hidden, static_cast<int64_t>(end_))));
      end_ = max(0, min(end_, first_hidden_ + tile.RowsBelow(tile.lanes - 1)));
    } else if (Mask() == kWorkMaskPositions) {
      query_positions_ = reinterpret_cast<int64_t*>(shared);
      key_positions_ = query_positions_ + kLanes;
      keys_row_ = work.key_positions.row;
      keys_ = static_cast<const int64_t*>(work.key_positions.data) +
              tile.batch * work.key_positions.batch + work.key_begin * keys_row_;
      const auto* queries = static_cast<const int64_t*>(work.query_positions.data) +
                            tile.batch * work.query_positions.batch;
      for (int lane = threadIdx.x; lane < tile.lanes; lane += blockDim.x) {
        query_positions_[lane] = queries[tile.Row(lane) * work.query_positions.row];
      }
      __syncthreads();
      least_ = greatest_ = query_positions_[0];
      for (int lane = 1; lane < tile.lanes; ++lane) {
        least_ = min(least_, query_positions_[lane]);
        greatest_ = max(greatest_, query_positions_[lane]);
      }
    }
  }

  // The first tile from `begin` on that some lane sees.
  __device__ KeyTile Next(int begin) {
    if (Mask() == kWorkMaskPositions) return NextByPositions(begin);
    KeyTile tile{.begin = begin};
    if (begin >= end_) return tile;
    tile.count = min(kKeys, end_ - begin);
    tile.all_seen =
        tile.count == kKeys && (Mask() == kWorkMaskNone || begin + kKeys <= first_hidden_);
    return tile;
  }

  // Number of tiles, except under kWorkMaskPositions.
  __device__ int Tiles() const { return (end_ + kKeys - 1) / kKeys; }

  // The tile's first key, in order of index, that a lane does not see. rows_below: the lane's row
  // from the query tile's first. Under kWorkMaskPositions: the number of keys.
  __device__ int Limit(const KeyTile& tile, int rows_below) const {
    if (Mask() != kWorkMaskDiagonal) return tile.count;
    return max(0, min(tile.count, first_hidden_ + rows_below - tile.begin));
  }
  __device__ bool ByPositions() const { return Mask() == kWorkMaskPositions; }
  __device__ bool Hides(const KeyTile& tile, int key, int lane) const {
    return key_positions_[tile.buffer * kKeys + key] > query_positions_[lane];
  }

 private:
  __device__ int Mask() const { return kMask == kWorkMaskAny ? mask_ : kMask; }

  // Each thread checks one key. The other buffer still serves the tile before.
  __device__ KeyTile NextByPositions(int begin) {
    static_assert(kKeys <= 128, "a thread each");
    buffer_ ^= 1;
    for (; begin < end_; begin += kKeys) {
      const int count = min(kKeys, end_ - begin);
      const int key = threadIdx.x;
      bool seen = false, seen_by_all = true;
      if (key < count) {
        const int64_t position = keys_[(begin + key) * keys_row_];
        key_positions_[buffer_ * kKeys + key] = position;
        seen = position <= greatest_;
        seen_by_all = position <= least_;
      }
      if (!__syncthreads_or(seen)) continue;
      const bool all = __syncthreads_and(seen_by_all);
      return {.begin = begin, .count = count, .all_seen = all && count == kKeys, .buffer = buffer_};
    }
    return {.begin = begin};
  }

  int mask_;
  int end_ = 0;                         // no lane sees a key from here on
  int first_hidden_ = 0;                // from the tile's first row, under kWorkMaskDiagonal
  int64_t* query_positions_ = nullptr;  // [kLanes], shared
  int64_t* key_positions_ = nullptr;    // [2, kKeys], shared
  const int64_t* keys_ = nullptr;       // of the batch, from the work's first key
  int64_t keys_row_ = 0;
  int64_t least_ = 0, greatest_ = 0;  // of the lanes' positions
  int buffer_ = 0;
};

}  // namespace hilbert_ring::cuda
