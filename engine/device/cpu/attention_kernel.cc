#include "engine/device/cpu/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/device/cpu/machine.h"

// Kernels keep vectors in arrays, which scalable vectors do not allow.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/attention_kernel.cc"
// Everything after foreach_target.h is compiled once per target, so that it must come first.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "engine/device/cpu/lane_block-inl.h"
#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

// Key tiles that are summed on their own before they are folded into the total: rounding errors of
// long sums grow with 64 + tiles / 64 instead of tiles, which equal keys by the million would show.
inline constexpr int64_t kTilesPerFold = 64;

inline constexpr int64_t kLineBytes = 64;  // of a cache, or a multiple of what it has

// Products between reports: about a millisecond at 15 GFLOP/s.
inline constexpr int64_t kProductsPerReport = int64_t{1} << 23;

// Beside the last row of values where their number is odd.
inline constexpr uint16_t kNoRow[kMaxDim] = {};

// One lane tile on its way through the keys.
template <typename Product>
class TileRun {
 public:
  TileRun(const LaneTile& tile, AttentionScratch& scratch)
      : tile_(tile),
        task_(*tile.task),
        scratch_(scratch),
        lanes_(tile.end - tile.begin),
        vector_(hn::Lanes(LaneTag())),
        visibility_(task_,
                    RowRange{tile.batch, tile.begin / task_.heads, (tile.end - 1) / task_.heads}) {}

  void Attend(const std::function<bool(int64_t)>& report) {
    PackQueries();
    Reset(scratch_.run);
    int64_t scores = 0;    // since the last report
    int64_t products = 0;  // likewise; hidden tiles count as one lane's
    const int64_t dims = task_.head_dim + task_.value_dim;
    int64_t tiles = 0;
    for (int64_t begin = 0; begin < visibility_.key_end(); begin += kKeyTile) {
      const KeyRange keys{tile_.batch, begin, std::min(kKeyTile, visibility_.key_end() - begin)};
      const int64_t computed = AttendKeys(keys);
      scores += computed;
      products += (computed + keys.count) * dims;
      if (++tiles % kTilesPerFold == 0) Fold();
      if (products >= kProductsPerReport) {
        if (!report(scores)) return;
        scores = products = 0;
      }
    }
    if (has_total_) Fold();
    const LaneState& state = has_total_ ? scratch_.total : scratch_.run;
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      const int64_t width = BlockVectors(first) * vector_;
      Transpose(state.out + first * task_.value_dim, task_.value_dim, width, scratch_.rows);
      for (int64_t lane = first; lane < std::min(lanes_, first + width); ++lane) {
        Finish(state, lane, scratch_.rows + (lane - first) * task_.value_dim);
      }
    }
    report(scores);
  }

 private:
  // Blocks are 3 vectors of lanes; the last one is as many as it takes.
  int64_t FullBlock() const { return 3 * vector_; }
  int64_t BlockVectors(int64_t first_lane) const {
    return std::min<int64_t>(3, hwy::DivCeil(lanes_ - first_lane, vector_));
  }

  LaneBlock Block(LaneState& state, int64_t first_lane) const {
    return {.queries = scratch_.queries + first_lane * QueryElements(),
            .limits = scratch_.limits + first_lane,
            .reference = state.reference + first_lane,
            .sum = state.sum + first_lane,
            .rounded_sum = state.rounded_sum + first_lane,
            .out = state.out + first_lane * task_.value_dim,
            .scores = scratch_.scores,
            .decay = scratch_.decay};
  }

  // Of a query or key.
  int64_t QueryElements() const { return task_.head_dim / Product::kTerms; }

  void PackQueries() {
    // The scale's sign goes into the queries, exactly, so that the greatest score stays the
    // greatest.
    const float sign = task_.scale > 0 ? 1.0f : task_.scale < 0 ? -1.0f : 0.0f;
    const int64_t elements = QueryElements();
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      const int64_t width = BlockVectors(first) * vector_;
      const int64_t lanes = std::min(width, lanes_ - first);
      for (int64_t i = 0; i < lanes; ++i) {
        const int64_t lane = tile_.begin + first + i;
        float* row = scratch_.rows + i * elements;
        LoadRow(task_.dtype, task_.q.data,
                tile_.batch * task_.q.batch_stride + lane / task_.heads * task_.q.row_stride +
                    lane % task_.heads * task_.q.head_stride,
                task_.head_dim, 8, row);
        StoreRow(row, task_.head_dim, sign, Product::kDataType, row);
      }
      std::fill(scratch_.rows + lanes * elements, scratch_.rows + width * elements, 0.0f);
      Transpose(scratch_.rows, width, elements, scratch_.queries + first * elements);
    }
  }

  void PackKeys(const KeyRange& keys) {
    const int64_t elements = QueryElements();
    const auto index = [&](const ConstView& view, int64_t j) {
      return keys.batch * view.batch_stride + (keys.begin + j) * view.row_stride;
    };
    std::fill(scratch_.keys + keys.count * elements,
              scratch_.keys + (keys.count + 7) / 8 * 8 * elements, 0.0f);
    if constexpr (Product::kTerms == 1) {
      for (int64_t j = 0; j < keys.count; ++j) {
        LoadRow(task_.dtype, task_.k.data, index(task_.k, j), task_.head_dim, 8,
                scratch_.keys + j * elements);
      }
      for (int64_t j = 0; j < keys.count; ++j) {
        LoadRow(task_.dtype, task_.v.data, index(task_.v, j), task_.value_dim, 8 * kKeyTile,
                scratch_.values + 8 * j);
      }
    } else {
      const auto* k = static_cast<const uint16_t*>(task_.k.data);
      const auto* v = static_cast<const uint16_t*>(task_.v.data);
      for (int64_t j = 0; j < keys.count; ++j) {
        std::memcpy(scratch_.keys + j * elements, k + index(task_.k, j),
                    static_cast<size_t>(task_.head_dim) * sizeof(uint16_t));
      }
      for (int64_t j = 0; j < keys.count; j += 2) {
        PairRows(v + index(task_.v, j), j + 1 < keys.count ? v + index(task_.v, j + 1) : kNoRow,
                 task_.value_dim, 8 * kKeyTile / Product::kTerms, scratch_.values + 8 * (j / 2));
      }
    }
  }

  // Asks for part `part` of `parts` of the rows of the key tile after `keys`: in time for its
  // packing, which reads strided rows faster than they are foreseen.
  void PrefetchNext(const KeyRange& keys, int64_t part, int64_t parts) const {
    const int64_t begin = keys.begin + keys.count;
    const int64_t count = std::min(kKeyTile, visibility_.key_end() - begin);
    const int64_t bytes = ElementBytes(task_.dtype);
    const auto prefetch = [&](const ConstView& view, int64_t dim) HWY_ATTR {
      for (int64_t j = count * part / parts; j < count * (part + 1) / parts; ++j) {
        const char* row = static_cast<const char*>(view.data) +
                          (keys.batch * view.batch_stride + (begin + j) * view.row_stride) * bytes;
        for (int64_t at = 0; at < dim * bytes; at += kLineBytes) hwy::Prefetch(row + at);
      }
    };
    if (count <= 0) return;
    prefetch(task_.k, task_.head_dim);
    prefetch(task_.v, task_.value_dim);
  }

  void Reset(LaneState& state) {
    const int64_t width = hwy::DivCeil(lanes_, vector_) * vector_;
    std::fill_n(state.reference, width, kNegativeInfinity);
    std::fill_n(state.sum, width, 0.0f);
    if constexpr (Product::kRoundsWeights) std::fill_n(state.rounded_sum, width, 0.0f);
    std::fill_n(state.out, width * task_.value_dim, 0.0f);
  }

  // Returns the scores of the rectangles that were not wholly masked.
  int64_t AttendKeys(const KeyRange& keys) {
    const Visible visible = visibility_.See(keys);
    if (visible == Visible::kNothing) return 0;
    if (visible == Visible::kSome) {
      int64_t row = tile_.begin / task_.heads;
      int64_t head = tile_.begin % task_.heads;
      float limit = static_cast<float>(visibility_.Limit(row));
      const int64_t width = hwy::DivCeil(lanes_, vector_) * vector_;
      for (int64_t lane = 0; lane < width; ++lane) {
        scratch_.limits[lane] = lane < lanes_ ? limit : 0.0f;
        if (++head == task_.heads && lane + 1 < lanes_) {
          head = 0;
          limit = static_cast<float>(visibility_.Limit(++row));
        }
      }
    }
    PackKeys(keys);
    run_is_empty_ = false;
    int64_t scores = 0;
    const int64_t blocks = hwy::DivCeil(lanes_, FullBlock());
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      PrefetchNext(keys, first / FullBlock(), blocks);
      const int64_t vectors = BlockVectors(first);
      const int64_t lanes = std::min(lanes_ - first, vectors * vector_);
      KeyTile tile{.keys = scratch_.keys,
                   .values = scratch_.values,
                   .ranks = nullptr,
                   .count = keys.count,
                   .head_dim = task_.head_dim,
                   .value_dim = task_.value_dim,
                   .scale = task_.scale == 0 ? 1.0f : std::abs(task_.scale)};
      if (visible == Visible::kSome) {
        const float* limits = scratch_.limits + first;
        const auto [least, greatest] = std::minmax_element(limits, limits + lanes);
        if (*greatest == 0.0f) continue;
        if (*least < static_cast<float>(keys.count)) tile.ranks = visibility_.ranks();
        if (visibility_.RanksAreIndices()) tile.count = static_cast<int64_t>(*greatest);
      }
      AttendBlock<Product>(Block(scratch_.run, first), vectors, tile);
      scores += lanes * tile.count;
    }
    return scores;
  }

  void Fold() {
    if (run_is_empty_) return;
    if (!has_total_) Reset(scratch_.total);
    has_total_ = true;
    for (int64_t first = 0; first < lanes_; first += FullBlock()) {
      FoldBlock<Product>(Block(scratch_.run, first), Block(scratch_.total, first),
                         BlockVectors(first) * vector_, task_.value_dim);
    }
    Reset(scratch_.run);
    run_is_empty_ = true;
  }

  // Writes or merges one lane's result; `values` are its sums of weight times value.
  void Finish(const LaneState& state, int64_t lane, const float* HWY_RESTRICT values) {
    const int64_t row = (tile_.begin + lane) / task_.heads;
    const int64_t head = (tile_.begin + lane) % task_.heads;
    const int64_t out_index = tile_.batch * task_.out.batch_stride + row * task_.out.row_stride +
                              head * task_.out.head_stride;
    const int64_t lse_index = tile_.batch * task_.lse.batch_stride + row * task_.lse.row_stride +
                              head * task_.lse.head_stride;
    const double sum = state.sum[lane];
    // Rounded weights are divided by their own sum, so that they are an average, and `lse` is that
    // of the weights themselves.
    const double weight_sum = Product::kRoundsWeights ? state.rounded_sum[lane] : state.sum[lane];
    const double reference = state.reference[lane];
    const bool merge = task_.result == Result::kMerge;
    if (sum == 0 && merge) return;

    if (!merge) {
      const double factor = sum == 0 ? 0.0 : task_.out_scale / weight_sum;
      StoreRow(values, task_.value_dim, static_cast<float>(factor), task_.out_dtype,
               static_cast<char*>(task_.out.data) + out_index * ElementBytes(task_.out_dtype));
      if (task_.lse.data != nullptr) {
        task_.lse.data[lse_index] =
            sum == 0 ? kNegativeInfinity : static_cast<float>(reference + std::log(sum));
      }
      return;
    }
    const double old_lse = task_.lse.data[lse_index];
    const double greatest = std::max(old_lse, reference);
    const double old_weight = std::exp(old_lse - greatest);
    const double new_weight = std::exp(reference - greatest);
    const double weights = old_weight + sum * new_weight;
    const float old_factor = static_cast<float>(old_weight / weights);
    const float new_factor = static_cast<float>(sum / weight_sum * new_weight / weights);
    float* HWY_RESTRICT out = static_cast<float*>(task_.out.data) + out_index;
    for (int64_t x = 0; x < task_.value_dim; ++x) {
      out[x] = out[x] * old_factor + values[x] * new_factor;
    }
    task_.lse.data[lse_index] = static_cast<float>(greatest + std::log(weights));
  }

  const LaneTile& tile_;
  const AttentionTask& task_;
  AttentionScratch& scratch_;
  const int64_t lanes_;
  const int64_t vector_;  // lanes of a vector
  KeyVisibility visibility_;
  bool run_is_empty_ = true;
  bool has_total_ = false;
};

// Tasks in bfloat16 by BFloat16Product, all others by FloatProduct.
template <typename BFloat16Product>
void AttendTile(const LaneTile& tile, AttentionScratch& scratch,
                const std::function<bool(int64_t)>& report) {
  if (tile.task->dtype == DataType::kBFloat16) {
    TileRun<BFloat16Product>(tile, scratch).Attend(report);
  } else {
    TileRun<FloatProduct>(tile, scratch).Attend(report);
  }
}

TargetKernels Kernels() {
  return {.attend = &AttendTile<FloatProduct>,
          .attend_with_pairs = kHasPairInstruction ? &AttendTile<InstructionPairProduct> : nullptr,
          .attend_with_emulated_pairs = &AttendTile<EmulatedPairProduct>,
          .store_row = &StoreRow};
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hilbert_ring {
namespace {

HWY_EXPORT(Kernels);

TargetKernels KernelsOf(int64_t target) {
  if (std::size(HWY_DISPATCH_TABLE(Kernels)) == 1) return HWY_DISPATCH_TABLE(Kernels)[0]();
  hwy::ChosenTarget chosen;  // not the process's own
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(Kernels)[chosen.GetIndex()]();
}

std::string InstructionsOf(int64_t target) {
  switch (target) {
    case HWY_SCALAR:
    case HWY_EMU128:
      return "portable";
    case HWY_AVX3:
      return "avx512";
    default:
      return absl::AsciiStrToLower(hwy::TargetName(target));
  }
}

}  // namespace

std::vector<CpuKernels> RunnableCpuKernels() {
  std::vector<CpuKernels> runnable;
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();  // the best first
  for (const int64_t target : targets) {
    const std::string instructions = InstructionsOf(target);
    const TargetKernels kernels = KernelsOf(target);
    if (kernels.attend_with_pairs != nullptr && HasAvx512BFloat16()) {
      runnable.push_back(
          {absl::StrCat(instructions, "-bf16"), kernels.attend_with_pairs, kernels.store_row});
    }
    runnable.push_back({instructions, kernels.attend, kernels.store_row});
  }
  const TargetKernels best = KernelsOf(targets.front());
  runnable.push_back({"bf16-emulated", best.attend_with_emulated_pairs, best.store_row});
  return runnable;
}

}  // namespace hilbert_ring
#endif  // HWY_ONCE
