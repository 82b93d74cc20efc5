// What every attention kernel does around its products: finds its tile, walks the key tiles that
// its rows see, and turns sums into results.
#pragma once

#include <cstdint>

#include "engine/device/cuda/attention_work.h"
#include "engine/device/cuda/intrinsics.cuh"

namespace hilbert_ring::cuda {

inline constexpr float kLn2 = 0.69314718055994531f;

__device__ __forceinline__ float NegativeInfinity() { return __int_as_float(0xff800000); }

// Up to kLanes lanes of one batch of a work.
struct QueryTile {
  const AttentionWork* work = nullptr;
  int64_t batch = 0;
  int64_t first_row = 0;
  int first_head = 0;  // of the first lane, in the first row
  int lanes = 0;

  __device__ int64_t Row(int lane) const {
    return work->heads == 1 ? first_row + lane
                            : first_row + (first_head + lane) / static_cast<int>(work->heads);
  }
  __device__ int Head(int lane) const {
    return work->heads == 1 ? 0 : (first_head + lane) % static_cast<int>(work->heads);
  }
  // Elements from a view's data to a lane's first one.
  __device__ int64_t At(const WorkView& view, int lane) const {
    return batch * view.batch + Row(lane) * view.row + Head(lane) * view.head;
  }
};

// Tile `tile` of a launch, whose works are sorted by their first tiles.
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
  QueryTile found{.work = &work, .batch = index / work.tiles_per_batch};
  int64_t of_batch = index % work.tiles_per_batch;
  // The last rows of a triangle have the most to do, so they begin first.
  if (work.mask == kWorkMaskDiagonal) of_batch = work.tiles_per_batch - 1 - of_batch;
  const int64_t first_lane = of_batch * lanes_per_tile;
  found.first_row = first_lane / work.heads;
  found.first_head = static_cast<int>(first_lane % work.heads);
  found.lanes =
      static_cast<int>(min(static_cast<int64_t>(lanes_per_tile), work.lanes - first_lane));
  return found;
}

// Keys [begin, begin + count); none when count is 0.
struct KeyTile {
  int64_t begin = 0;
  int count = 0;
  bool all_seen = false;  // by every lane, and the tile is full
  int buffer = 0;         // of the keys' positions
};

// Walks the key tiles of a query tile that some lane sees. All threads of a block call it alike.
template <int kLanes, int kKeys>
class KeyWalk {
 public:
  static constexpr int kSharedBytes = (kLanes + 2 * kKeys) * static_cast<int>(sizeof(int64_t));

  // `shared`: kSharedBytes, aligned to 8. Used under kWorkMaskPositions alone.
  __device__ KeyWalk(const QueryTile& tile, char* shared)
      : work_(*tile.work), first_row_(tile.first_row), end_(tile.work->key_end) {
    if (work_.mask == kWorkMaskDiagonal) {
      end_ = min(end_, tile.Row(tile.lanes - 1) + work_.diagonal_shift + 1);
    } else if (work_.mask == kWorkMaskPositions) {
      query_positions_ = reinterpret_cast<int64_t*>(shared);
      key_positions_ = query_positions_ + kLanes;
      keys_ = static_cast<const int64_t*>(work_.key_positions.data) +
              tile.batch * work_.key_positions.batch;
      const auto* queries = static_cast<const int64_t*>(work_.query_positions.data) +
                            tile.batch * work_.query_positions.batch;
      for (int lane = threadIdx.x; lane < tile.lanes; lane += blockDim.x) {
        query_positions_[lane] = queries[tile.Row(lane) * work_.query_positions.row];
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
  __device__ KeyTile Next(int64_t begin) {
    if (work_.mask == kWorkMaskPositions) return NextByPositions(begin);
    KeyTile tile{.begin = begin};
    if (begin >= end_) return tile;
    tile.count = static_cast<int>(min(static_cast<int64_t>(kKeys), end_ - begin));
    tile.all_seen = tile.count == kKeys && (work_.mask == kWorkMaskNone ||
                                            begin + kKeys - 1 <= first_row_ + work_.diagonal_shift);
    return tile;
  }

  // Keys of the tile from this one on are hidden from the row, in order of index. Under
  // kWorkMaskPositions only those past the last key.
  __device__ int Limit(const KeyTile& tile, int64_t row) const {
    if (work_.mask != kWorkMaskDiagonal) return tile.count;
    const int64_t limit = row + work_.diagonal_shift + 1 - tile.begin;
    return static_cast<int>(max(int64_t{0}, min(static_cast<int64_t>(tile.count), limit)));
  }
  __device__ bool ByPositions() const { return work_.mask == kWorkMaskPositions; }
  __device__ bool Hides(const KeyTile& tile, int key, int lane) const {
    return key_positions_[tile.buffer * kKeys + key] > query_positions_[lane];
  }

 private:
  // Each thread looks at one key. The other buffer still serves the tile before.
  __device__ KeyTile NextByPositions(int64_t begin) {
    static_assert(kKeys <= 128, "a thread each");
    buffer_ ^= 1;
    for (; begin < end_; begin += kKeys) {
      const int count = static_cast<int>(min(static_cast<int64_t>(kKeys), end_ - begin));
      const int key = threadIdx.x;
      bool seen = false, seen_by_all = true;
      if (key < count) {
        const int64_t position = keys_[(begin + key) * work_.key_positions.row];
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

  const AttentionWork& work_;
  int64_t first_row_;
  int64_t end_;
  int64_t* query_positions_ = nullptr;  // [kLanes], shared
  int64_t* key_positions_ = nullptr;    // [2, kKeys], shared
  const int64_t* keys_ = nullptr;       // of the batch
  int64_t least_ = 0, greatest_ = 0;    // of the lanes' positions
  int buffer_ = 0;
};

// How a row's sums become its result: out = sums * own + prior * before.
struct RowEnd {
  float own = 0, before = 0;
  float lse = 0;
};

// The row's weights are 2^(score - reference), in units of log2; `sum` is theirs, 0 where no key
// was seen. prior_lse: of what it is merged with, -infinity where there is nothing.
__device__ inline RowEnd EndRow(float reference, float sum, float prior_lse, float out_scale) {
  RowEnd end{.lse = NegativeInfinity()};
  if (sum != 0) {
    end.own = 1.0f / sum;
    end.lse = (reference + log2f(sum)) * kLn2;
  }
  if (prior_lse != NegativeInfinity()) {
    if (sum == 0) {
      end.before = 1.0f;
      end.lse = prior_lse;
    } else {
      const float ratio = expf(-fabsf(end.lse - prior_lse));
      const float more = 1.0f / (1.0f + ratio), less = ratio / (1.0f + ratio);
      end.own *= end.lse >= prior_lse ? more : less;
      end.before = end.lse >= prior_lse ? less : more;
      end.lse = fmaxf(end.lse, prior_lse) + log1pf(ratio);
    }
  }
  end.own *= out_scale;
  end.before *= out_scale;
  return end;
}

__device__ inline float PriorLse(const QueryTile& tile, int lane) {
  const WorkView& view = tile.work->prior_lse;
  if (view.data == nullptr || lane >= tile.lanes) return NegativeInfinity();
  return static_cast<const float*>(view.data)[tile.At(view, lane)];
}

// Where the lane's row begins in prior_out, or null.
__device__ inline const float* PriorRow(const QueryTile& tile, int lane) {
  const WorkView& view = tile.work->prior_out;
  return view.data == nullptr ? nullptr
                              : static_cast<const float*>(view.data) + tile.At(view, lane);
}

__device__ inline void StoreLse(const QueryTile& tile, int lane, float lse) {
  const WorkView& view = tile.work->lse;
  if (view.data != nullptr) static_cast<float*>(view.data)[tile.At(view, lane)] = lse;
}

// Whether a row that saw no key is left as it is.
__device__ inline bool InPlace(const AttentionWork& work) {
  return work.prior_out.data != nullptr && work.prior_out.data == work.out.data;
}

// Two values of a row at elements `at` and at + 1 of out, an even number from the row's first.
__device__ inline void StorePair(const AttentionWork& work, int64_t at, float first, float second) {
  switch (work.out_dtype) {
    case kWorkFloat32: {
      float* to = static_cast<float*>(work.out.data) + at;
      if (work.out_aligned) {
        *reinterpret_cast<float2*>(to) = make_float2(first, second);
      } else {
        to[0] = first;
        to[1] = second;
      }
      break;
    }
    case kWorkBFloat16:
    case kWorkFloat16: {
      const uint32_t pair = work.out_dtype == kWorkBFloat16 ? PackPair<BFloat16>(first, second)
                                                            : PackPair<Float16>(first, second);
      uint16_t* to = static_cast<uint16_t*>(work.out.data) + at;
      if (work.out_aligned) {
        *reinterpret_cast<uint32_t*>(to) = pair;
      } else {
        to[0] = static_cast<uint16_t>(pair);
        to[1] = static_cast<uint16_t>(pair >> 16);
      }
      break;
    }
  }
}

// As StorePair, of sums; `prior` is where the row begins in prior_out, or null.
__device__ inline void EndPair(const AttentionWork& work, const RowEnd& end, const float* prior,
                               int64_t row_at, int dim, float first, float second) {
  first *= end.own;
  second *= end.own;
  if (end.before != 0) {
    first += prior[dim] * end.before;
    second += prior[dim + 1] * end.before;
  }
  StorePair(work, row_at + dim, first, second);
}

// Adds what a block has computed to the launch's count.
__device__ inline void CountScores(unsigned long long* scores, int64_t count) {
  if (threadIdx.x == 0 && count > 0) atomicAdd(scores, static_cast<unsigned long long>(count));
}

}  // namespace hilbert_ring::cuda
