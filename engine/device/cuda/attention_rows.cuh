// What becomes of a row's sums when all keys of a work have passed: the row's result, or a part of
// it that more is merged with.
#pragma once

#include <cstdint>

#include "engine/device/cuda/attention_tile.cuh"
#include "engine/device/cuda/attention_work.h"
#include "engine/device/cuda/intrinsics.cuh"

namespace hilbert_ring::cuda {

__device__ __forceinline__ bool IsFinite(float value) { return fabsf(value) < -NegativeInfinity(); }

// A row's softmax: its greatest score, before the scale, and the sum of exp(scale * (score -
// greatest)), which is NaN where one of the scores is NaN or +infinity, and 0 where all are
// -infinity or none was seen.
struct RowState {
  float max;
  float sum;
};

// How a row's sums become its result: out = sums * own + prior * before.
struct RowEnd {
  float own = 0, before = 0;
  bool sees = false;    // a key whose score is not -infinity; else `own` is 0 whatever the sums are
  bool merges = false;  // with a prior that saw one; else there is no need to read it
  RowState state{NegativeInfinity(), 0.0f};
};

// exp(scale * difference), of two greatest scores that are not -infinity.
__device__ inline float MergeWeight(const AttentionWork& work, float difference) {
  return work.scale == 0 ? 1.0f : exp2f(difference * work.score_scale);
}

// `own` is of the weights that the row's sums are made with, `prior` of what they are merged with.
__device__ inline RowEnd EndRow(const AttentionWork& work, RowState own, const RowState& prior) {
  // Scores are float32: a product with the scale that overflows it is infinite.
  const float greatest = own.max * work.scale;
  if (own.sum == own.sum && greatest == NegativeInfinity()) own.sum = 0;
  if (own.sum != 0 && greatest == -NegativeInfinity()) own.sum = greatest - greatest;
  RowEnd end;
  end.sees = own.sum != 0;
  end.merges = prior.sum != 0;
  if (!end.merges) {
    if (end.sees) {
      end.own = 1.0f / own.sum;
      end.state = own;
    }
  } else if (!end.sees) {
    end.before = 1.0f;
    end.state = prior;
  } else {
    const float top = fmaxf(own.max, prior.max);
    const float now = MergeWeight(work, own.max - top);
    const float then = prior.sum * MergeWeight(work, prior.max - top);
    const float sum = own.sum * now + then;
    end.own = now / sum;
    end.before = then / sum;
    end.state = {top, sum};
  }
  end.own *= work.out_scale;
  end.before *= work.out_scale;
  return end;
}

__device__ inline RowState PriorState(const QueryTile& tile, int lane) {
  const WorkState& view = tile.work->prior_state;
  if (view.max == nullptr || lane >= tile.lanes) return {NegativeInfinity(), 0.0f};
  const int64_t at = tile.At(view, lane);
  return {view.max[at], view.sum[at]};
}

// Where the lane's row begins in prior_out, or null.
__device__ inline const float* PriorRow(const QueryTile& tile, int lane) {
  const WorkView& view = tile.work->prior_out;
  return view.data == nullptr ? nullptr
                              : static_cast<const float*>(view.data) + tile.At(view, lane);
}

// scale: not negative.
__device__ inline float LseOf(const RowState& state, float scale) {
  return state.sum == 0 ? NegativeInfinity() : fmaf(scale, state.max, logf(state.sum));
}

__device__ inline void StoreState(const QueryTile& tile, int lane, const RowState& state) {
  const AttentionWork& work = *tile.work;
  if (work.state.max != nullptr) {
    const int64_t at = tile.At(work.state, lane);
    work.state.max[at] = state.max;
    work.state.sum[at] = state.sum;
  }
  if (work.lse.data != nullptr) {
    static_cast<float*>(work.lse.data)[tile.At(work.lse, lane)] = LseOf(state, work.scale);
  }
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

// A part of a result. What is not finite in it outlasts any factor, as that is 0 by rounding alone.
template <typename Number>
__device__ inline Number Share(Number value, float factor) {
  return factor == 0 && !(value - value == 0) ? value : value * factor;
}

// As StorePair, of sums that are finite where the row's state is; `prior` is where the row begins
// in prior_out, or null.
__device__ inline void EndPair(const AttentionWork& work, const RowEnd& end, const float* prior,
                               int64_t row_at, int dim, float first, float second) {
  first *= end.own;
  second *= end.own;
  if (end.merges) {
    first += Share(prior[dim], end.before);
    second += Share(prior[dim + 1], end.before);
  }
  StorePair(work, row_at + dim, first, second);
}

// Tells whether the tile of this block is left to AttendCarefully, which it is where any thread
// found need for it, and returns it.
__device__ inline bool NoteTile(const LaunchNotes& notes, bool careful) {
  const bool any = __syncthreads_or(careful) != 0;
  if (threadIdx.x == 0) {
    notes.careful_tiles[blockIdx.x] = any ? 1 : 0;
    if (any) *notes.careful = 1;
  }
  return any;
}

// Adds what a block has computed to the launch's count.
__device__ inline void CountScores(const LaunchNotes& notes, int64_t count) {
  if (threadIdx.x == 0 && count > 0) {
    atomicAdd(notes.scores, static_cast<unsigned long long>(count));
  }
}

}  // namespace hilbert_ring::cuda
