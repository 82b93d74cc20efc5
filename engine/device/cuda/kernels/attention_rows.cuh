// The end of a row after all keys of a work: its result, or a part that is merged later.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"

namespace hilbert_ring::cuda {

__device__ __forceinline__ bool IsFinite(float value) { return fabsf(value) < -NegativeInfinity(); }

// A row's softmax: its greatest score, before the scale, and the sum of exp(scale * (score -
// greatest)): NaN if a score is NaN or +infinity, 0 if no score is above -infinity.
struct RowState {
  float max;
  float sum;
};

// Factors of a row's result: out = sums * own + prior * before. Sum: the type of sums.
template <typename Sum>
struct RowEnd {
  float own = 0, before = 0;
  RowState state{NegativeInfinity(), 0.0f};

  // sees: a score is above -infinity, else `own` is 0. merges: the prior has such a score.
  bool sees = false, merges = false;

  // The same result: out = (sums * now + prior * then) / (sum * now + then) * out_scale.
  Sum sum = 0;
  float now = 0, then = 0;
};

// exp(scale * (score - greatest)), also if float32 does not hold the difference or its product.
__device__ inline double ExactWeight(const AttentionWork& work, float score, float greatest) {
  constexpr double kLog2E = 1.4426950408889634;
  const double scale = work.scale == 0 ? 1.0 : work.scale * kLog2E;
  return exp2((double{score} - double{greatest}) * scale);
}

// exp(scale * (max - top)) of greatest scores above -infinity. Sum: the type of sums.
template <typename Sum>
__device__ inline float MergeWeight(const AttentionWork& work, float max, float top) {
  if (work.scale == 0) return 1.0f;
  if constexpr (sizeof(Sum) == sizeof(double)) {
    return static_cast<float>(ExactWeight(work, max, top));
  } else {
    return exp2f((max - top) * work.score_scale);
  }
}

// max, sum: of the weights in the row's sums. prior: the state that they are merged with.
template <typename Sum>
__device__ inline RowEnd<Sum> EndRow(const AttentionWork& work, float max, Sum sum,
                                     const RowState& prior) {
  // Scores are float32: a product with the scale that overflows is infinite.
  const float greatest = max * work.scale;
  if (sum == sum && greatest == NegativeInfinity()) sum = 0;
  if (sum != 0 && greatest == -NegativeInfinity()) sum = greatest - greatest;
  RowEnd<Sum> end;
  end.sum = sum;
  end.sees = sum != 0;
  end.merges = prior.sum != 0;
  if (!end.merges) {
    if (end.sees) {
      end.now = 1.0f;
      end.own = 1.0f / static_cast<float>(sum);
      end.state = {max, static_cast<float>(sum)};
    }
  } else if (!end.sees) {
    end.then = prior.sum;
    end.before = 1.0f;
    end.state = prior;
  } else {
    const float top = fmaxf(max, prior.max);
    end.now = MergeWeight<Sum>(work, max, top);
    end.then = prior.sum * MergeWeight<Sum>(work, prior.max, top);
    const float all = static_cast<float>(sum * end.now + end.then);
    end.own = end.now / all;
    end.before = end.then / all;
    end.state = {top, all};
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

// The lane's row in prior_out, or null.
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

// Returns whether a row that saw no key stays as it is.
__device__ inline bool InPlace(const AttentionWork& work) {
  return work.prior_out.data != nullptr && work.prior_out.data == work.out.data;
}

// Stores two values of a row at elements `at` and at + 1 of out, an even distance from the first.
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

// A part of a result. Infinities and NaN outlast a factor of 0, which is 0 by rounding alone.
template <typename Number>
__device__ inline Number Share(Number value, float factor) {
  return factor == 0 && !(value - value == 0) ? value : value * factor;
}

// An element of the result in float64: finite if the exact element is.
template <typename Sum>
__device__ inline float EndExactly(const AttentionWork& work, const RowEnd<Sum>& end, double sum,
                                   float prior) {
  if (!end.sees && !end.merges) return 0.0f;
  const double own = end.sees ? Share(sum, end.now) : 0.0;
  const double before = end.merges ? Share(double{prior}, end.then) : 0.0;
  const double all = double{end.sum} * end.now + end.then;
  return static_cast<float>((own + before) / all * work.out_scale);
}

// Stores like StorePair, from sums that are finite if the state is. prior: in prior_out, or null.
__device__ inline void EndPair(const AttentionWork& work, const RowEnd<float>& end,
                               const float* prior, int64_t row_at, int dim, float first,
                               float second) {
  float results[2] = {first * end.own, second * end.own};
  if (end.merges) {
    const float sums[2] = {first, second};
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      results[x] += prior[dim + x] * end.before;
      if (!IsFinite(results[x])) results[x] = EndExactly(work, end, sums[x], prior[dim + x]);
    }
  }
  StorePair(work, row_at + dim, results[0], results[1]);
}

// Notes whether tile `tile` of the launch is left to AttendCarefully. Called by one thread.
__device__ inline void NoteTile(const LaunchNotes& notes, int64_t tile, bool careful) {
  notes.careful_tiles[tile] = careful ? 1 : 0;
  if (careful) *notes.careful = 1;
}

// Notes it for a block's only tile. Called by all threads of the block.
struct BlockNote {
  const LaunchNotes& notes;
  const AttentionWork& work;

  // careful: the thread needs it. Returns whether any thread or the work does.
  __device__ bool operator()(bool careful) const {
    const bool any = __syncthreads_or(careful) != 0 || work.careful != 0;
    if (threadIdx.x == 0) NoteTile(notes, blockIdx.x, any);
    return any;
  }
};

__device__ inline void CountScores(const LaunchNotes& notes, int64_t count) {
  if (threadIdx.x == 0 && count > 0) {
    atomicAdd(notes.scores, static_cast<unsigned long long>(count));
  }
}

}  // namespace hilbert_ring::cuda
