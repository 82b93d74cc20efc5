// The pass of one lane tile through the keys of its task.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_TILE_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_TILE_PASS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_TILE_PASS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_TILE_PASS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <bitset>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/lane_block-inl.h"
#include "engine/device/cpu/lane_end.h"
#include "engine/device/cpu/lane_places.h"
#include "engine/device/cpu/packed_keys-inl.h"
#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/rows-inl.h"
#include "engine/device/score_unit.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

// Products between reports: about a millisecond at 15 GFLOP/s.
inline constexpr int64_t kProductsPerReport = int64_t{1} << 23;

// Rows of queries and outputs that are prefetched ahead of the moved row.
inline constexpr int64_t kRowsAhead = 12;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Ways to sum weight times value. A lane is finished by the first way with right sums: its result
// does not depend on other lanes of its tile.
enum class SumMode {
  kNone,
  kNonFiniteApart,  // values that are not finite are summed apart
  kSmallWeights,    // also, weights sum to less than 1
};

template <typename Product>
class TilePass {
 public:
  TilePass(const LaneTile& tile, AttentionScratch& scratch)
      : tile_(tile),
        task_(*tile.task),
        scratch_(scratch),
        lanes_(tile.end - tile.begin),
        vector_(hn::Lanes(LaneTag())),
        visibility_(task_,
                    RowRange{tile.batch, tile.begin / task_.heads, (tile.end - 1) / task_.heads}),
        keys_(task_, scratch),
        blocks_(scratch) {}

  void Attend(const std::function<bool(int64_t)>& report) {
    PackQueries();
    if (task_.change.slopes != nullptr) PlaceLanes(tile_, AllLanes(), 0, scratch_);
    if (!Run(report) || FinishLanes()) return;
    const auto told = [&](int64_t) { return report(0); };  // the same scores again
    std::fill_n(scratch_.non_finite, AllLanes() * task_.value_dim, 0.0f);
    if (keys_.HasNonFiniteValues(tile_.batch, visibility_.key_begin(), visibility_.key_end())) {
      sum_mode_ = SumMode::kNonFiniteApart;
      if (!Run(told) || FinishLanes()) return;
    }
    KeepWhatIsFinite();
    MakeWeightsSmall();
    if (Run(told)) FinishLanes();
  }

 private:
  static constexpr int64_t kKeyTile = Product::kKeyTile;

  // Sums over every key, into State(). Returns false if `report` does.
  template <typename Report>
  bool Run(const Report& report) {
    Reset(scratch_.run);
    has_total_ = false;
    run_is_empty_ = true;
    int64_t scores = 0;    // since the last report
    int64_t products = 0;  // also; hidden tiles count as one lane's
    const int64_t dims = task_.head_dim + task_.value_dim;
    // Tiles and folds begin at the same keys for all lanes.
    const int64_t first = visibility_.key_begin() / kKeyTile * kKeyTile;
    for (int64_t begin = first; begin < visibility_.key_end(); begin += kKeyTile) {
      const KeyRange keys{tile_.batch, begin, std::min(kKeyTile, visibility_.key_end() - begin)};
      const int64_t computed = AttendKeys(keys);
      scores += computed;
      products += (computed + keys.count) * dims;
      if ((begin + kKeyTile) % kKeysPerFold == 0) Fold();
      if (products >= kProductsPerReport) {
        if (!report(scores)) return false;
        scores = products = 0;
      }
    }
    if (has_total_) Fold();
    return report(scores);
  }

  const LaneState& State() const { return has_total_ ? scratch_.total : scratch_.run; }

  // Finishes open lanes whose sums are right; returns whether all lanes are finished.
  bool FinishLanes() {
    const LaneState& state = State();
    const int64_t element_bytes = ElementBytes(task_.out_dtype);
    bool all = true;
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      const int64_t width = BlockVectors(first) * vector_;
      const int64_t at = first * task_.value_dim;
      alignas(64) float wrong[kMaxLaneBlock];
      for (int64_t b = 0; b < width; b += vector_) FindWrong(state, first, b, wrong + b);
      Transpose(state.out + at, task_.value_dim, width, scratch_.rows);
      // All keys are used, so their part of the scratch is free.
      if (sum_mode_ != SumMode::kNone)
        Transpose(scratch_.non_finite + at, task_.value_dim, width, NonFiniteRows());
      for (int64_t lane = first; lane < std::min(lanes_, first + width); ++lane) {
        Ask(task_.out, lane + kRowsAhead, task_.value_dim, element_bytes);
        if (finished_[lane]) continue;
        if (wrong[lane - first] != 0 && sum_mode_ != SumMode::kSmallWeights) {
          all = false;
          continue;
        }
        Finish(state, lane, (lane - first) * task_.value_dim);
        finished_.set(lane);
      }
    }
    return all;
  }

  // Makes `wrong` nonzero in lanes with finite weights whose sums of weight times value are not
  // finite: a value, seen or not, is not finite, or a sum overflowed. Sums of small weights are
  // always right.
  void FindWrong(const LaneState& state, int64_t first, int64_t b, float* wrong) const {
    const LaneTag d;
    const int64_t width = BlockVectors(first) * vector_;
    auto probe = hn::Zero(d);  // becomes NaN
    for (int64_t x = 0; x < task_.value_dim; ++x) {
      const float* at = state.out + first * task_.value_dim + x * width + b;
      probe = hn::MulAdd(hn::Load(d, at), hn::Zero(d), probe);
    }
    const auto is_wrong =
        hn::AndNot(hn::IsNaN(hn::Load(d, state.sum + first + b)), hn::IsNaN(probe));
    hn::Store(hn::IfThenElseZero(is_wrong, hn::Set(d, 1.0f)), d, wrong);
  }

  // Keeps finite sums of lanes in which others overflowed: small weights might lose their last
  // bits.
  void KeepWhatIsFinite() {
    const LaneTag d;
    const LaneState& state = State();
    for (int64_t i = 0; i < AllLanes() * task_.value_dim; i += vector_) {
      const auto non_finite = hn::Load(d, scratch_.non_finite + i);
      const auto sum = hn::Load(d, state.out + i);
      const auto kept = hn::And(hn::Eq(non_finite, hn::Zero(d)), hn::IsFinite(sum));
      hn::Store(hn::IfThenElse(kept, sum, non_finite), d, scratch_.non_finite + i);
    }
  }

  // Their sum stays below 1 at any number of keys.
  void MakeWeightsSmall() {
    sum_mode_ = SumMode::kSmallWeights;
    halvings_ = std::bit_width(static_cast<uint64_t>(task_.key_rows)) + 1;
    doubling_ = std::ldexp(1.0, static_cast<int>(halvings_));
  }

  float* NonFiniteRows() { return scratch_.keys; }

  int64_t AllLanes() const { return hwy::DivCeil(lanes_, vector_) * vector_; }

  // The last block has only the vectors that it needs.
  int64_t FullBlock() const { return Product::kBlockVectors * vector_; }
  int64_t BlockVectors(int64_t first_lane) const {
    return std::min(Product::kBlockVectors, hwy::DivCeil(lanes_ - first_lane, vector_));
  }

  LaneBlock Block(LaneState& state, int64_t first_lane) const {
    return {.queries = scratch_.queries + first_lane * QueryElements(),
            .limits = scratch_.limits + first_lane,
            .starts = nullptr,
            .distances = DistancesOf(task_, scratch_, first_lane),
            .row_max = state.row_max + first_lane,
            .sum = state.sum + first_lane,
            .rounded_sum = state.rounded_sum + first_lane,
            .out = state.out + first_lane * task_.value_dim,
            .scores = scratch_.scores,
            .rescale = scratch_.rescale,
            .non_finite = scratch_.non_finite + first_lane * task_.value_dim};
  }

  template <typename View>
  int64_t Index(const View& view, int64_t lane) const {
    const int64_t row = (tile_.begin + lane) / task_.heads;
    const int64_t head = (tile_.begin + lane) % task_.heads;
    return tile_.batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
  }

  // Prefetches a lane's row of `count` elements, if the lane exists: a processor does not predict
  // rows of neighbouring lanes, which lie far apart.
  template <typename View>
  HWY_INLINE void Ask(const View& view, int64_t lane, int64_t count, int64_t element_bytes) const {
    if (lane >= lanes_) return;
    const char* row = static_cast<const char*>(view.data) + Index(view, lane) * element_bytes;
    for (int64_t at = 0; at < count * element_bytes; at += kLineBytes) Prefetch()(row + at);
  }

  int64_t QueryElements() const { return RowElements<Product>(task_.head_dim); }

  void PackQueries() {
    const float sign = QuerySign(task_);
    const int64_t elements = QueryElements();
    const int64_t element_bytes = ElementBytes(task_.dtype);
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      const int64_t width = BlockVectors(first) * vector_;
      const int64_t lanes = std::min(width, lanes_ - first);
      for (int64_t i = 0; i < lanes; ++i) {
        Ask(task_.q, first + i + kRowsAhead, task_.head_dim, element_bytes);
        float* row = scratch_.rows + i * elements;
        LoadRow(task_.dtype, task_.q.data, Index(task_.q, first + i), task_.head_dim, 8, row);
        StoreRow(row, task_.head_dim, sign, Product::kDataType, row);
        std::fill(row + task_.head_dim / Product::kTerms, row + elements, 0.0f);
      }
      if constexpr (Product::kTerms > 1) {
        least_query_ = std::min(
            least_query_,
            LeastNonzero(reinterpret_cast<const uint16_t*>(scratch_.rows), lanes * elements * 2));
      }
      std::fill(scratch_.rows + lanes * elements, scratch_.rows + width * elements, 0.0f);
      Transpose(scratch_.rows, width, elements, scratch_.queries + first * elements);
    }
  }

  void Reset(LaneState& state) {
    const int64_t width = AllLanes();
    std::fill_n(state.row_max, width, kNegativeInfinity);
    std::fill_n(state.sum, width, 0.0f);
    if constexpr (Product::kRoundsWeights) std::fill_n(state.rounded_sum, width, 0.0f);
    std::fill_n(state.out, width * task_.value_dim, 0.0f);
  }

  // Returns the number of scores in rectangles that were not wholly masked.
  int64_t AttendKeys(const KeyRange& keys) {
    const Visible visible = visibility_.See(keys);
    if (visible == Visible::kNothing) return 0;
    if (visible == Visible::kSome) FillLimits(visibility_, tile_, AllLanes(), 0, scratch_);
    if (task_.change.slopes != nullptr) PlaceKeys(task_, keys, scratch_);
    keys_.Pack(keys, sum_mode_ != SumMode::kNone);
    run_is_empty_ = false;
    int64_t scores = 0;
    const int64_t blocks = hwy::DivCeil(lanes_, FullBlock());
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      const int64_t vectors = BlockVectors(first);
      const int64_t lanes = std::min(lanes_ - first, vectors * vector_);
      KeyTile tile{
          .keys = scratch_.keys,
          .values = scratch_.values,
          .ranks = nullptr,
          .count = keys.count,
          .head_dim = task_.head_dim,
          .value_dim = task_.value_dim,
          .scale = ScratchScale(task_),
          .unit = unit_,
          .change = task_.change.changes() ? &change_ : nullptr,
          .halvings = halvings_,
          .exact_scores = Product::kTerms > 1 && !ProductsAreNormal(least_query_, keys_.least()),
          .non_finite = sum_mode_ == SumMode::kNonFiniteApart ? keys_.non_finite()
                                                              : std::span<const NonFiniteValue>(),
          .coming = keys_.Coming(keys, visibility_.key_end(), first / FullBlock(), blocks)};
      LaneBlock block = Block(scratch_.run, first);
      if (visible == Visible::kSome) {
        const float* limits = scratch_.limits + first;
        const auto [least, greatest] = std::minmax_element(limits, limits + lanes);
        const float* starts = scratch_.starts + first;
        const auto [first_start, last_start] = std::minmax_element(starts, starts + lanes);
        if (*greatest <= *first_start) continue;
        if (*last_start > 0.0f) block.starts = starts;
        if (*least < static_cast<float>(keys.count)) tile.ranks = visibility_.ranks();
        if (visibility_.RanksAreIndices()) tile.count = static_cast<int64_t>(*greatest);
      }
      blocks_.Next(block, vectors, tile);
      scores += lanes * tile.count;
    }
    blocks_.End();
    return scores;
  }

  void Fold() {
    if (run_is_empty_) return;
    if (!has_total_) Reset(scratch_.total);
    has_total_ = true;
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      FoldBlock<Product>(Block(scratch_.run, first), Block(scratch_.total, first),
                         BlockVectors(first) * vector_, task_.value_dim, unit_);
    }
    Reset(scratch_.run);
    run_is_empty_ = true;
  }

  // Writes or merges one lane's result. Its sums of weight times value begin at `at` in
  // scratch_.rows, the sums kept apart at `at` in NonFiniteRows().
  void Finish(const LaneState& state, int64_t lane, int64_t at) {
    const auto index = [&](const auto& view) { return Index(view, lane); };
    const LaneEnd end{.row_max = state.row_max[lane] / unit_.factor,
                      .sum = state.sum[lane] * doubling_,
                      .scale = std::abs(task_.StateScale())};
    const SeenScores seen = end.Seen();
    // Rounded weights are divided by their own sum, to an average; `lse` is of the weights
    // themselves.
    double factor =
        seen != SeenScores::kKeys
            ? 1.0
            : 1.0 / (Product::kRoundsWeights ? state.rounded_sum[lane] : state.sum[lane]);
    float* HWY_RESTRICT values = scratch_.rows + at;
    if (seen != SeenScores::kKeys) {
      std::fill_n(values, task_.value_dim, seen == SeenScores::kNothing ? 0.0f : kNan);
    } else if (sum_mode_ == SumMode::kNonFiniteApart) {
      AddNonFinite(NonFiniteRows() + at, values);
    } else if (sum_mode_ == SumMode::kSmallWeights) {
      MakeAverages(NonFiniteRows() + at, factor, values);
      factor = 1;
    }
    if (task_.result == Result::kMerge) {
      if (seen != SeenScores::kNothing) Merge(end, seen, values, factor, index);
      return;
    }
    StoreRow(values, task_.value_dim, static_cast<float>(factor * task_.out_scale), task_.out_dtype,
             static_cast<char*>(task_.out.data) + index(task_.out) * ElementBytes(task_.out_dtype));
    if (task_.lse.data != nullptr) task_.lse.data[index(task_.lse)] = end.Lse(seen);
  }

  void AddNonFinite(const float* HWY_RESTRICT non_finite, float* HWY_RESTRICT values) const {
    for (int64_t x = 0; x < task_.value_dim; ++x) {
      if (non_finite[x] != 0) values[x] = non_finite[x];  // NaN too
    }
  }

  // Averages from sums of small weights, and from kept sums of whole weights or values not finite.
  void MakeAverages(const float* HWY_RESTRICT kept, double factor,
                    float* HWY_RESTRICT values) const {
    for (int64_t x = 0; x < task_.value_dim; ++x) {
      const double average = kept[x] != 0 ? kept[x] * (factor / doubling_) : values[x] * factor;
      values[x] = static_cast<float>(NotBeyond(kept[x] != 0 ? kept[x] : values[x], average));
    }
  }

  // values * factor: the average of the values that the lane sees, or NaN.
  template <typename Index>
  void Merge(const LaneEnd& end, SeenScores seen, const float* HWY_RESTRICT values, double factor,
             const Index& index) {
    float& max = task_.state.max[index(task_.state)];
    float& sum = task_.state.sum[index(task_.state)];
    if (std::isnan(sum)) return;
    MergeShares shares;
    if (seen == SeenScores::kNotFinite) {
      sum = kNan;
      shares = {.before = 0, .now = 1};
    } else {
      shares = MergeKeys(end, max, sum);
    }
    shares.now *= factor;
    float* HWY_RESTRICT out = static_cast<float*>(task_.out.data) + index(task_.out);
    MergeRow(shares, values, task_.value_dim, out);
  }

  const LaneTile& tile_;
  const AttentionTask& task_;
  AttentionScratch& scratch_;
  const int64_t lanes_;
  const int64_t vector_;  // lanes of a vector
  KeyVisibility visibility_;
  PackedKeys<Product> keys_;
  BlockSequence<Product> blocks_;
  bool run_is_empty_ = true;
  bool has_total_ = false;
  SumMode sum_mode_ = SumMode::kNone;
  std::bitset<kMaxLaneTile> finished_;
  const ScoreUnit unit_ = ScoreUnitOf(ScratchScale(task_));
  const TileChange change_ = ChangeOf(task_, scratch_);
  int64_t halvings_ = 0;
  double doubling_ = 1;  // 2^halvings_
  uint16_t least_query_ = kNoBFloat16;
};

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_TILE_PASS_INL_H_
