// The part of an attention kernel before its products: finds its tile and walks the key tiles that
// its rows see. attention_rows.cuh has the part after them.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_change.cuh"
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

// Finds tile `tile` of a launch, whose works are sorted by their first tiles, or interleaved.
__device__ inline QueryTile FindTile(const AttentionWork* works, int count, int64_t tile,
                                     int lanes_per_tile) {
  const bool interleaved = works[count - 1].first_tile == 0;
  int low = interleaved ? static_cast<int>(tile % count) : 0;
  int high = interleaved ? low : count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (works[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const AttentionWork& work = works[low];
  const int64_t index = work.task_tile + (interleaved ? tile / count : tile - work.first_tile);
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
  bool by_all = true;  // under kWorkMaskPositions: every lane's position allows every key
  int buffer = 0;      // of the keys' places
};

inline constexpr int kWorkMaskAny = -1;  // KeyWalk reads the mask from the work

// Walks the key tiles that some lane of a query tile sees, from the first key that one sees. All
// threads of a block make the same calls. It copies fields of the work, which kernels would
// otherwise read again at every step.
//
// Under kWorkMaskPositions, or with slopes by position, queries and keys have places: their
// positions if the work has them, else those of rows from the work's first key. Only kWorkMaskAny
// serves works with places or slopes.
template <int kLanes, int kKeys, int kMask = kWorkMaskAny>
class KeyWalk {
 public:
  static constexpr int kSharedBytes = (kLanes + 2 * kKeys) * static_cast<int>(sizeof(int64_t));

  // shared: kSharedBytes, aligned to 8, used for places alone.
  __device__ KeyWalk(const QueryTile& tile, char* shared) : mask_(tile.work->mask) {
    const AttentionWork& work = *tile.work;
    end_ = static_cast<int>(work.key_end - work.key_begin);
    if (Mask() == kWorkMaskDiagonal) {
      // Beyond these limits all lanes see every key, or no key.
      const auto from_first = [&](int64_t key) {
        return static_cast<int>(
            max(int64_t{-kLanes}, min(key - work.key_begin, static_cast<int64_t>(end_))));
      };
      const int last_row = tile.RowsBelow(tile.lanes - 1);
      first_seen_ = from_first(tile.first_row + work.lower_shift);
      first_hidden_ = from_first(tile.first_row + work.upper_shift + 1);
      all_started_ = first_seen_ + last_row;
      begin_ = max(0, first_seen_);
      end_ = max(begin_, min(end_, first_hidden_ + last_row));
    }
    if constexpr (kMask != kWorkMaskAny) return;
    by_coordinates_ = work.change.axes > 0;
    if (mask_ != kWorkMaskPositions && (work.change.slopes == nullptr || by_coordinates_)) return;
    query_places_ = reinterpret_cast<int64_t*>(shared);
    key_places_ = query_places_ + kLanes;
    if (work.key_positions.data == nullptr) {
      keys_row_ = work.change.row_distance;
    } else {
      keys_row_ = work.key_positions.row;
      keys_ = static_cast<const int64_t*>(work.key_positions.data) +
              tile.batch * work.key_positions.batch + work.key_begin * keys_row_;
    }
    for (int lane = threadIdx.x; lane < tile.lanes; lane += blockDim.x) {
      query_places_[lane] = QueryPlace(tile, lane);
    }
    __syncthreads();
    if (mask_ != kWorkMaskPositions) return;
    least_ = greatest_ = query_places_[0];
    for (int lane = 1; lane < tile.lanes; ++lane) {
      least_ = min(least_, query_places_[lane]);
      greatest_ = max(greatest_, query_places_[lane]);
    }
  }

  // Counts keys from the first that a lane sees instead of the work's first.
  __device__ void CountFromBegin() {
    end_ -= begin_;
    first_seen_ -= begin_;
    first_hidden_ -= begin_;
    all_started_ -= begin_;
    begin_ = 0;
  }

  // The first tile that some lane sees, and the first such tile from `begin` on.
  __device__ KeyTile First() { return Next(begin_); }
  __device__ KeyTile Next(int begin) {
    if (kMask == kWorkMaskAny && key_places_ != nullptr) return NextWithPlaces(begin);
    KeyTile tile{.begin = begin};
    if (begin >= end_) return tile;
    tile.count = min(kKeys, end_ - begin);
    return tile;
  }

  // Whether the tile is full, and every lane sees all of it.
  __device__ bool AllSeen(const KeyTile& tile) const {
    return tile.count == kKeys && tile.by_all &&
           (Mask() != kWorkMaskDiagonal ||
            (tile.begin >= all_started_ && tile.begin + kKeys <= first_hidden_));
  }

  // The first key that a lane sees, and the number of tiles from it on. Not under
  // kWorkMaskPositions.
  __device__ int begin() const { return begin_; }
  __device__ int Tiles() const { return (end_ - begin_ + kKeys - 1) / kKeys; }

  // By index a lane sees keys [Start, Limit) of the tile. rows_below: the lane's row from the query
  // tile's first. HidesStart: some lane's Start is above 0.
  __device__ int Start(const KeyTile& tile, int rows_below) const {
    return Mask() == kWorkMaskDiagonal ? first_seen_ + rows_below - tile.begin : 0;
  }
  __device__ int Limit(const KeyTile& tile, int rows_below) const {
    if (Mask() != kWorkMaskDiagonal) return tile.count;
    return max(0, min(tile.count, first_hidden_ + rows_below - tile.begin));
  }
  __device__ bool HidesStart(const KeyTile& tile) const {
    return Mask() == kWorkMaskDiagonal && tile.begin < all_started_;
  }
  __device__ bool ByPositions() const { return Mask() == kWorkMaskPositions; }
  __device__ bool Hides(const KeyTile& tile, int key, int lane) const {
    return key_places_[tile.buffer * kKeys + key] > query_places_[lane];
  }

  // The distance of a lane from a key. Only works with slopes. Keys after the tile's last have some
  // distance.
  __device__ float Distance(const QueryTile& query, const KeyTile& tile, int key, int lane) const {
    return by_coordinates_
               ? SpaceBetween(query, tile, key, lane)
               : DistanceOf(query_places_[lane] - key_places_[tile.buffer * kKeys + key]);
  }

 private:
  __device__ int Mask() const { return kMask == kWorkMaskAny ? mask_ : kMask; }

  __device__ static float SpaceBetween(const QueryTile& query, const KeyTile& tile, int key,
                                       int lane) {
    const AttentionWork& work = *query.work;
    const auto* const from = static_cast<const float*>(work.query_coordinates.data) +
                             query.At(work.query_coordinates, lane);
    const auto* const to =
        static_cast<const float*>(work.key_coordinates.data) +
        query.batch * work.key_coordinates.batch +
        (work.key_begin + tile.begin + min(key, tile.count - 1)) * work.key_coordinates.row;
    float square = 0;
    for (int axis = 0; axis < work.change.axes; ++axis) {
      const float apart = to[axis] - from[axis];
      square = fmaf(apart, apart, square);
    }
    return square == square ? sqrtf(square) : 0.0f;  // NaN: 0
  }

  __device__ static int64_t QueryPlace(const QueryTile& tile, int lane) {
    const AttentionWork& work = *tile.work;
    const WorkView& view = work.query_positions;
    const int64_t row = tile.Row(lane);
    if (view.data == nullptr) {
      return (row + work.change.diagonal_shift - work.key_begin) * work.change.row_distance;
    }
    return static_cast<const int64_t*>(view.data)[tile.batch * view.batch + row * view.row];
  }

  // Each thread checks one key. The other buffer still serves the tile before.
  __device__ KeyTile NextWithPlaces(int begin) {
    static_assert(kKeys <= 128, "a thread each");
    buffer_ ^= 1;
    for (; begin < end_; begin += kKeys) {
      const int count = min(kKeys, end_ - begin);
      const int key = threadIdx.x;
      bool seen = false, seen_by_all = true;
      if (key < count) {
        const int64_t at = (begin + key) * keys_row_;
        const int64_t place = keys_ == nullptr ? at : keys_[at];
        key_places_[buffer_ * kKeys + key] = place;
        seen = mask_ != kWorkMaskPositions || place <= greatest_;
        seen_by_all = mask_ != kWorkMaskPositions || place <= least_;
      }
      if (!__syncthreads_or(seen)) continue;
      const bool by_all = __syncthreads_and(seen_by_all);
      return {.begin = begin, .count = count, .by_all = by_all, .buffer = buffer_};
    }
    return {.begin = begin};
  }

  int mask_;
  bool by_coordinates_ = false;
  int begin_ = 0;  // no lane sees a key before it,
  int end_ = 0;    // or from here on
  // Under kWorkMaskDiagonal: the first key of the first row, the key after its last, and the first
  // key of the last row.
  int first_seen_ = 0, first_hidden_ = 0, all_started_ = 0;
  int64_t* query_places_ = nullptr;   // [kLanes], shared
  int64_t* key_places_ = nullptr;     // [2, kKeys], shared
  const int64_t* keys_ = nullptr;     // positions of the batch, from the work's first key; or null
  int64_t keys_row_ = 0;              // from one key to the next
  int64_t least_ = 0, greatest_ = 0;  // of the lanes' positions
  int buffer_ = 0;
};

}  // namespace hilbert_ring::cuda
