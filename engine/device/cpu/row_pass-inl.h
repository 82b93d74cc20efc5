// The pass of few lanes through the keys of their tasks, at the speed of memory.
//
// Vectors run over dims, so keys and values are read where they lie. Tasks of neighbouring kv heads
// pass through the same rows together: memory is read in the order of addresses.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_ROW_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_ROW_PASS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_ROW_PASS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_ROW_PASS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/coming_rows.h"
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

// Lanes of a task fill whole quads, and those of all tasks whole vectors: a lane's place among them
// is its slot. Float16 is widened to float32 before the products read it.
template <typename Terms>
class RowPass {
  using T = typename Terms::Element;
  using Product = typename Terms::Product;

 public:
  RowPass(std::span<const AttentionTask> tasks, AttentionScratch& scratch)
      : tasks_(tasks),
        count_(static_cast<int64_t>(tasks.size())),
        task_(tasks.front()),
        scratch_(scratch),
        lanes_(task_.query_rows * task_.heads),
        task_slots_(RowSlots(task_)),
        slots_(hwy::RoundUpTo(task_slots_ * count_, Vector())),
        query_floats_(RowFloats(task_.head_dim)),
        value_floats_(RowFloats(task_.value_dim)),
        visibility_(task_, RowRange{0, 0, task_.query_rows - 1}) {}

  // Returns false if a result may not be exact or finite: nothing is merged then.
  bool Attend(const std::function<bool(int64_t)>& report) {
    PackQueries();
    for (int64_t t = 0; t < count_ && task_.change.slopes != nullptr; ++t) {
      PlaceLanes(LanesOf(t), task_slots_, t * task_slots_, scratch_);
    }
    std::fill_n(scratch_.run.row_max, slots_, kNegativeInfinity);
    std::fill_n(scratch_.run.sum, slots_, 0.0f);
    std::fill_n(scratch_.run.rounded_sum, slots_, 0.0f);
    std::fill_n(scratch_.run.out, slots_ * value_floats_, 0.0f);
    int64_t scores = 0;
    const int64_t end = visibility_.key_end();
    for (int64_t begin = visibility_.key_begin(); begin < end; begin += kMaxRowTile) {
      scores += AttendKeys({0, begin, std::min(kMaxRowTile, end - begin)});
    }
    if (!report(scores)) return true;
    bool right =
        Product::kTerms == 1 || ProductsAreNormal(least_query_, Terms::MagnitudeOf(least_keys_));
    ForEachLane([&](int64_t, int64_t, int64_t slot) { right = right && IsFinite(slot); });
    if (right) ForEachLane([&](int64_t t, int64_t lane, int64_t slot) { Merge(t, lane, slot); });
    return right;
  }

 private:
  static int64_t Vector() { return hn::Lanes(LaneTag()); }

  LaneTile LanesOf(int64_t t) const { return {.task = &tasks_[t], .begin = 0, .end = lanes_}; }

  // visit(task, lane of it, slot)
  template <typename Visit>
  void ForEachLane(const Visit& visit) const {
    for (int64_t t = 0; t < count_; ++t) {
      for (int64_t lane = 0; lane < lanes_; ++lane) visit(t, lane, t * task_slots_ + lane);
    }
  }

  template <typename View>
  int64_t Index(const View& view, int64_t lane) const {
    return lane / task_.heads * view.row_stride + lane % task_.heads * view.head_stride;
  }

  void PackQueries() {
    const float sign = QuerySign(task_);
    std::fill_n(scratch_.queries, slots_ * query_floats_, 0.0f);
    auto least = Terms::NoneYet();
    for (int64_t slot = 0; slot < count_ * task_slots_; ++slot) {
      const ConstView& q = tasks_[slot / task_slots_].q;
      const int64_t lane = slot % task_slots_;
      if (lane >= lanes_) continue;
      const Rows<T> row = RowsAt(q, Index(q, lane), 1, task_.head_dim, scratch_.rows);
      float* to = scratch_.queries + slot * query_floats_;
      for (int64_t x = 0; x < row.dim; x += PairDims(), to += Terms::kKeyVectors * Vector()) {
        least = Terms::Smaller(Terms::LoadKey(row.data + x, row.dim - x), least);
        Terms::StoreQuery(row.data + x, row.dim - x, sign, to);
      }
    }
    least_query_ = Terms::MagnitudeOf(least);
  }

  // Returns the number of scores, unless all are masked.
  int64_t AttendKeys(const KeyRange& keys) {
    const Visible visible = visibility_.See(keys);
    if (visible == Visible::kNothing) return 0;
    const ComingRows coming = Coming(keys);
    ComingLines lines(coming, Reads(keys.count));
    const auto next = [&]() HWY_ATTR { lines.Next(PrefetchSoon()); };
    ScoreKeys(keys, next);
    WeighKeys(keys, visible);
    AddValues(keys, next);
    return lanes_ * count_ * keys.count;
  }

  // Scores of a vector's slots are [key][slot].
  float* ScoresOf(int64_t slot) const {
    return scratch_.scores + slot / Vector() * Vector() * kMaxRowTile + slot % Vector();
  }

  // Next(): goes with each vector pair that the first quads of tasks read.
  template <typename Next>
  void ScoreKeys(const KeyRange& keys, const Next& next) {
    auto least = least_keys_;
    for (int64_t t = 0; t < count_; ++t) {
      const ConstView& k = tasks_[t].k;
      const Rows<T> rows =
          RowsAt(k, keys.begin * k.row_stride, keys.count, task_.head_dim, scratch_.keys);
      int64_t slot = t * task_slots_;
      const auto score = [&]<bool kFirst>(const auto& each) HWY_ATTR {
        const float* queries = scratch_.queries + slot * query_floats_;
        for (int64_t j = 0; j < keys.count; j += kQuad) {
          ScoreQuad<Terms, kFirst>(rows, j, queries, least, each, Vector(), ScoresOf(slot));
        }
      };
      score.template operator()<true>(next);
      for (slot += kQuad; slot < (t + 1) * task_slots_; slot += kQuad) {
        score.template operator()<false>(Nothing());
      }
    }
    least_keys_ = least;
  }

  void WeighKeys(const KeyRange& keys, Visible visible) {
    if (task_.change.slopes != nullptr) PlaceKeys(task_, keys, scratch_);
    const bool some = visible == Visible::kSome;
    for (int64_t t = 0; t < count_ && some; ++t) {
      FillLimits(visibility_, LanesOf(t), task_slots_, t * task_slots_, scratch_);
    }
    const KeyTile tile{.ranks = some ? visibility_.ranks() : nullptr,
                       .count = keys.count,
                       .scale = ScratchScale(task_),
                       .unit = unit_,
                       .change = task_.change.changes() ? &change_ : nullptr};
    for (int64_t slot = 0; slot < slots_; slot += Vector()) {
      const LaneBlock block{
          .limits = scratch_.limits + slot,
          .starts = some && visibility_.HasStarts() ? scratch_.starts + slot : nullptr,
          .distances = DistancesOf(task_, scratch_, slot),
          .row_max = scratch_.run.row_max + slot,
          .sum = scratch_.run.sum + slot,
          .rounded_sum = scratch_.run.rounded_sum + slot,
          .scores = ScoresOf(slot),
          .rescale = scratch_.rescale + slot};
      ChangeScores(block, tile, Vector());
      Weights<Product, 1>(block, tile);
    }
  }

  template <typename Next>
  void AddValues(const KeyRange& keys, const Next& next) {
    for (int64_t t = 0; t < count_; ++t) {
      const ConstView& v = tasks_[t].v;
      const Rows<T> rows =
          RowsAt(v, keys.begin * v.row_stride, keys.count, task_.value_dim, scratch_.values);
      for (int64_t lane = 0; lane < lanes_; lane += kQuad) {
        const int64_t slot = t * task_slots_ + lane;
        const auto add = [&]<int kLanes>(const auto& each) HWY_ATTR {
          AddQuad<Terms, kLanes>(rows, ScoresOf(slot), Vector(), scratch_.rescale + slot, each,
                                 scratch_.run.out + slot * value_floats_);
        };
        if (lane > 0) {
          add.template operator()<kQuad>(Nothing());
        } else if (lanes_ == 1) {
          add.template operator()<1>(next);
        } else if (lanes_ == 2) {
          add.template operator()<2>(next);
        } else {
          add.template operator()<kQuad>(next);
        }
      }
    }
  }

  // Vector pairs that the first quads of all tasks read in a tile.
  int64_t Reads(int64_t keys) const {
    return count_ * (hwy::RoundUpTo(keys, kQuad) * hwy::DivCeil(task_.head_dim, PairDims()) +
                     hwy::DivCeil(keys, Terms::kKeys) * hwy::DivCeil(task_.value_dim, PairDims()));
  }

  // Rows of a view from element `index` on; float16 is widened to `wide`.
  Rows<T> RowsAt(const ConstView& view, int64_t index, int64_t count, int64_t dim,
                 float* wide) const {
    if (task_.dtype != DataType::kFloat16) {
      return {static_cast<const T*>(view.data) + index, view.row_stride, count, dim};
    }
    for (int64_t j = 0; j < count; ++j) {
      LoadRow(task_.dtype, view.data, index + j * view.row_stride, dim, 8, wide + j * dim);
    }
    return {reinterpret_cast<const T*>(wide), dim, count, dim};
  }

  // The next tile's rows of all tasks.
  ComingRows Coming(const KeyRange& keys) const {
    const int64_t element = ElementBytes(task_.dtype);
    const int64_t begin = keys.begin + keys.count;
    const auto row = [&](const ConstView& view) {
      return static_cast<const char*>(view.data) + begin * view.row_stride * element;
    };
    return {.keys = row(task_.k),
            .values = row(task_.v),
            .key_stride = task_.k.row_stride * element,
            .value_stride = task_.v.row_stride * element,
            .key_bytes = count_ * task_.head_dim * element,
            .value_bytes = count_ * task_.value_dim * element,
            .count = std::clamp<int64_t>(visibility_.key_end() - begin, 0, kMaxRowTile)};
  }

  LaneEnd End(int64_t slot) const {
    return {.row_max = scratch_.run.row_max[slot] / unit_.factor,
            .sum = scratch_.run.sum[slot],
            .scale = std::abs(task_.StateScale())};
  }

  bool IsFinite(int64_t slot) const {
    const LaneTag d;
    const float* out = scratch_.run.out + slot * value_floats_;
    auto probe = hn::Zero(d);  // becomes NaN
    for (int64_t x = 0; x < value_floats_; x += Vector()) {
      probe = hn::MulAdd(hn::Load(d, out + x), hn::Zero(d), probe);
    }
    const bool finite = hn::AllTrue(d, hn::Eq(probe, hn::Zero(d)));
    return finite && End(slot).Seen() != SeenScores::kNotFinite;
  }

  void Merge(int64_t t, int64_t lane, int64_t slot) {
    const LaneEnd end = End(slot);
    if (end.Seen() == SeenScores::kNothing) return;
    const AttentionTask& task = tasks_[t];
    const int64_t at = Index(task.state, lane);
    if (std::isnan(task.state.sum[at])) return;
    MergeShares shares = MergeKeys(end, task.state.max[at], task.state.sum[at]);
    shares.now /= Product::kRoundsWeights ? scratch_.run.rounded_sum[slot] : end.sum;
    const float* sums = scratch_.run.out + slot * value_floats_;
    for (int64_t x = 0; x < task.value_dim; ++x) {
      const int64_t in_pair = x % PairDims();
      scratch_.rows[x] = sums[x - in_pair + Terms::PlaceOf(in_pair)];
    }
    MergeRow(shares, scratch_.rows, task.value_dim,
             static_cast<float*>(task.out.data) + Index(task.out, lane));
  }

  const std::span<const AttentionTask> tasks_;
  const int64_t count_;        // of tasks
  const AttentionTask& task_;  // the first: all are alike
  AttentionScratch& scratch_;
  const int64_t lanes_;  // of each task
  const int64_t task_slots_;
  const int64_t slots_;
  const int64_t query_floats_;  // of a slot
  const int64_t value_floats_;
  KeyVisibility visibility_;
  uint16_t least_query_ = kNoBFloat16;
  typename Terms::Least least_keys_ = Terms::NoneYet();
  const ScoreUnit unit_ = ScoreUnitOf(ScratchScale(task_));
  const TileChange change_ = ChangeOf(task_, scratch_);
};

// AttendRowsFunction. BFloat16Product: as of AttendTile.
template <typename BFloat16Product>
bool AttendRows(std::span<const AttentionTask> tasks, AttentionScratch& scratch,
                const std::function<bool(int64_t)>& report) {
  if (tasks.front().dtype != DataType::kBFloat16) {
    return RowPass<FloatTerms<float>>(tasks, scratch).Attend(report);
  }
  if constexpr (std::is_same_v<BFloat16Product, FloatProduct>) {
    return RowPass<FloatTerms<uint16_t>>(tasks, scratch).Attend(report);
  } else {
    return RowPass<PairTerms<BFloat16Product>>(tasks, scratch).Attend(report);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_ROW_PASS_INL_H_
