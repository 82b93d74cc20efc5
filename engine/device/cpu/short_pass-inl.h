// The pass of many short batches of tasks: few queries meet few keys in each, and all share the
// softmax's vectors.
//
// Vectors of both products run over dims, so queries, keys and values are read where they lie.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_SHORT_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_SHORT_PASS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_SHORT_PASS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_SHORT_PASS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/lane_end.h"
#include "engine/device/cpu/lane_places.h"
#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/row_products-inl.h"
#include "engine/device/cpu/rows-inl.h"
#include "engine/device/cpu/score_change-inl.h"
#include "engine/device/cpu/weights-inl.h"
#include "engine/device/score_unit.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Lanes of a batch fill whole quads: a lane's place among all is its slot. 16-bit rows are widened
// to float32 before the products read them.
class ShortPass {
  using Terms = FloatTerms<float>;

 public:
  ShortPass(std::span<const LaneTile> batches, AttentionScratch& scratch)
      : batches_(batches),
        task_(*batches.front().task),
        scratch_(scratch),
        query_floats_(RowFloats(task_.head_dim)),
        value_floats_(RowFloats(task_.value_dim)) {}

  // Adds to `rest` the lanes whose results may not be exact or finite.
  void Attend(std::vector<LaneTile>& rest) {
    ForEachBatch([&](const LaneTile& of, int64_t slot) {
      PackQueries(of, slot);
      ScoreKeys(of, slot);
      LimitLanes(of, slot);
      slots_ = slot + RowSlots(*of.task);
    });
    Weigh();
    ForEachBatch([&](const LaneTile& of, int64_t slot) {
      AddValues(of, slot);
      for (int64_t lane = 0; lane < of.end; ++lane) {
        if (!Finish(of, lane, slot + lane)) rest.push_back({of.task, of.batch, lane, lane + 1});
      }
    });
  }

 private:
  static int64_t Vector() { return hn::Lanes(LaneTag()); }

  // visit(batch, its first slot)
  template <typename Visit>
  void ForEachBatch(const Visit& visit) const {
    int64_t slot = 0;
    for (const LaneTile& of : batches_) {
      visit(of, slot);
      slot += RowSlots(*of.task);
    }
  }

  template <typename View>
  static int64_t Index(const View& view, const LaneTile& of, int64_t lane) {
    return of.batch * view.batch_stride + lane / of.task->heads * view.row_stride +
           lane % of.task->heads * view.head_stride;
  }

  // Rows of a view from element `index` on; 16-bit ones are widened to `wide`.
  Rows<float> RowsAt(const ConstView& view, int64_t index, int64_t count, int64_t dim,
                     float* wide) const {
    if (task_.dtype == DataType::kFloat32) {
      return {static_cast<const float*>(view.data) + index, view.row_stride, count, dim};
    }
    for (int64_t j = 0; j < count; ++j) {
      LoadRow(task_.dtype, view.data, index + j * view.row_stride, dim, 8, wide + j * dim);
    }
    return {wide, dim, count, dim};
  }

  void PackQueries(const LaneTile& of, int64_t slot) {
    const float sign = QuerySign(task_);
    float* to = scratch_.queries + slot * query_floats_;
    for (int64_t lane = 0; lane < of.end; ++lane) {
      const Rows<float> row =
          RowsAt(of.task->q, Index(of.task->q, of, lane), 1, task_.head_dim, scratch_.rows);
      for (int64_t x = 0; x < row.dim; x += PairDims(), to += PairDims()) {
        Terms::StoreQuery(row.data + x, row.dim - x, sign, to);
      }
    }
    std::fill_n(to, (RowSlots(*of.task) - of.end) * query_floats_, 0.0f);
  }

  // Scores of a vector's slots are [key][slot].
  float* ScoresOf(int64_t slot) const {
    return scratch_.scores + slot / Vector() * Vector() * kMostShortKeys + slot % Vector();
  }

  void ScoreKeys(const LaneTile& of, int64_t first_slot) const {
    const ConstView& k = of.task->k;
    const Rows<float> rows =
        RowsAt(k, of.batch * k.batch_stride, of.task->key_rows, task_.head_dim, scratch_.keys);
    auto least = Terms::NoneYet();
    for (int64_t slot = first_slot; slot < first_slot + RowSlots(*of.task); slot += kQuad) {
      for (int64_t j = 0; j < rows.count; j += kQuad) {
        ScoreQuad<Terms, false>(rows, j, scratch_.queries + slot * query_floats_, least, Nothing(),
                                Vector(), ScoresOf(slot));
      }
    }
  }

  void LimitLanes(const LaneTile& of, int64_t slot) {
    const AttentionTask& task = *of.task;
    const int64_t slots = RowSlots(task);
    if (task.change.slopes != nullptr) PlaceLanes(of, slots, slot, scratch_);
    keys_ = std::max(keys_, task.key_rows);
    if (task.mask == Mask::kNone) {
      std::fill_n(scratch_.limits + slot, of.end, static_cast<float>(task.key_rows));
      std::fill_n(scratch_.limits + slot + of.end, slots - of.end, 0.0f);
      std::fill_n(scratch_.starts + slot, slots, 0.0f);
      return;
    }
    KeyVisibility visibility(task, RowRange{of.batch, 0, task.query_rows - 1});
    visibility.See({of.batch, 0, task.key_rows});
    FillLimits(visibility, of, slots, slot, scratch_);
    has_starts_ = has_starts_ || visibility.HasStarts();
  }

  void Weigh() {
    const int64_t all = hwy::RoundUpTo(slots_, Vector());
    std::fill_n(scratch_.limits + slots_, all - slots_, 0.0f);
    std::fill_n(scratch_.run.row_max, all, kNegativeInfinity);
    std::fill_n(scratch_.run.sum, all, 0.0f);
    std::fill_n(scratch_.run.out, all * value_floats_, 0.0f);
    if (task_.change.slopes != nullptr) PlaceKeys(task_, {0, 0, keys_}, scratch_);
    const TileChange change = ChangeOf(task_, scratch_);
    const KeyTile tile{.ranks = kShortRanks,
                       .count = keys_,
                       .scale = ScratchScale(task_),
                       .unit = unit_,
                       .change = task_.change.changes() ? &change : nullptr};
    for (int64_t slot = 0; slot < all; slot += Vector()) {
      const LaneBlock block{.limits = scratch_.limits + slot,
                            .starts = has_starts_ ? scratch_.starts + slot : nullptr,
                            .distances = DistancesOf(task_, scratch_, slot),
                            .row_max = scratch_.run.row_max + slot,
                            .sum = scratch_.run.sum + slot,
                            .scores = ScoresOf(slot),
                            .rescale = scratch_.rescale + slot};
      ChangeScores(block, tile, Vector());
      Weights<FloatProduct, 1>(block, tile);
    }
  }

  void AddValues(const LaneTile& of, int64_t first_slot) const {
    const ConstView& v = of.task->v;
    const Rows<float> rows =
        RowsAt(v, of.batch * v.batch_stride, of.task->key_rows, task_.value_dim, scratch_.values);
    const auto add = [&]<int kLanes>(int64_t slot, int64_t begin, int64_t end) HWY_ATTR {
      AddQuad<Terms, kLanes>({rows.data + begin * rows.stride, rows.stride, end - begin, rows.dim},
                             ScoresOf(slot) + begin * Vector(), Vector(), scratch_.rescale + slot,
                             Nothing(), scratch_.run.out + slot * value_floats_);
    };
    const bool masked = of.task->mask != Mask::kNone;
    for (int64_t lane = 0; lane < of.end;) {
      const int64_t slot = first_slot + lane, left = of.end - lane;
      if (masked) {  // values of hidden keys may not be finite
        const auto end = static_cast<int64_t>(scratch_.limits[slot]);
        add.template operator()<1>(slot, std::min(end, static_cast<int64_t>(scratch_.starts[slot])),
                                   end);
        ++lane;
        continue;
      }
      if (left == 1) {
        add.template operator()<1>(slot, 0, rows.count);
      } else if (left == 2) {
        add.template operator()<2>(slot, 0, rows.count);
      } else {
        add.template operator()<kQuad>(slot, 0, rows.count);
      }
      lane += kQuad;
    }
  }

  bool IsFinite(const float* sums) const {
    const LaneTag d;
    auto probe = hn::Zero(d);  // becomes NaN
    for (int64_t x = 0; x < value_floats_; x += Vector()) {
      probe = hn::MulAdd(hn::Load(d, sums + x), hn::Zero(d), probe);
    }
    return hn::AllTrue(d, hn::Eq(probe, hn::Zero(d)));
  }

  // Returns false, without a result, if it may not be exact or finite.
  bool Finish(const LaneTile& of, int64_t lane, int64_t slot) const {
    const AttentionTask& task = *of.task;
    float* const sums = scratch_.run.out + slot * value_floats_;
    const LaneEnd end{.row_max = scratch_.run.row_max[slot] / unit_.factor,
                      .sum = scratch_.run.sum[slot],
                      .scale = std::abs(task_.StateScale())};
    const SeenScores seen = end.Seen();
    if (seen == SeenScores::kNotFinite || !IsFinite(sums)) return false;
    if (task.result == Result::kMerge) {
      const int64_t at = Index(task.state, of, lane);
      if (seen == SeenScores::kNothing || std::isnan(task.state.sum[at])) return true;
      MergeShares shares = MergeKeys(end, task.state.max[at], task.state.sum[at]);
      shares.now /= end.sum;
      MergeRow(shares, sums, task.value_dim,
               static_cast<float*>(task.out.data) + Index(task.out, of, lane));
      return true;
    }
    if (seen == SeenScores::kNothing) std::fill_n(sums, task.value_dim, 0.0f);
    const double factor = seen == SeenScores::kNothing ? 1.0 : 1.0 / end.sum;
    StoreRow(sums, task.value_dim, static_cast<float>(factor * task.out_scale), task.out_dtype,
             static_cast<char*>(task.out.data) +
                 Index(task.out, of, lane) * ElementBytes(task.out_dtype));
    if (task.lse.data != nullptr) task.lse.data[Index(task.lse, of, lane)] = end.Lse(seen);
    return true;
  }

  const std::span<const LaneTile> batches_;
  const AttentionTask& task_;  // the first: others differ in rows, mask and results
  AttentionScratch& scratch_;
  const int64_t query_floats_;  // of a slot
  const int64_t value_floats_;
  int64_t slots_ = 0;
  int64_t keys_ = 0;  // of the batch with most
  bool has_starts_ = false;
  const ScoreUnit unit_ = ScoreUnitOf(ScratchScale(task_));
};

// AttendShortFunction.
inline void AttendShort(std::span<const LaneTile> batches, AttentionScratch& scratch,
                        std::vector<LaneTile>& rest) {
  ShortPass(batches, scratch).Attend(rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_SHORT_PASS_INL_H_
