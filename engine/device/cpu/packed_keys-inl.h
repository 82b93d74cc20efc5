// A tile of keys and values, packed for the products.

// Highway includes this once per target.
#if defined(HILBERT_RING_DEVICE_CPU_PACKED_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HILBERT_RING_DEVICE_CPU_PACKED_KEYS_INL_H_
#undef HILBERT_RING_DEVICE_CPU_PACKED_KEYS_INL_H_
#else
#define HILBERT_RING_DEVICE_CPU_PACKED_KEYS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/coming_rows.h"
#include "engine/device/cpu/lane_block-inl.h"
#include "engine/device/cpu/product-inl.h"
#include "engine/device/cpu/rows-inl.h"
#include "engine/device/cpu/tile_layout.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

// Pairs with the last row of an odd number of values.
inline constexpr uint16_t kNoRow[kMaxDim] = {};

// The packed tile of a task, in the scratch. Values have the product's layout:
//   lanes: [value_dim / 8][kValueRows][8];
//   tiles: [ValueTileRow][kKeyTile / 2], rows of dims and pairs of keys.
template <typename Product>
class PackedKeys {
 public:
  PackedKeys(const AttentionTask& task, AttentionScratch& scratch)
      : task_(task), scratch_(scratch) {}

  // Packs the tile into the scratch. careful: values that are not finite are kept apart.
  void Pack(const KeyRange& keys, bool careful) {
    const int64_t elements = RowElements<Product>(task_.head_dim);
    const auto index = [&](const ConstView& view, int64_t j) {
      return keys.batch * view.batch_stride + (keys.begin + j) * view.row_stride;
    };
    std::fill(
        scratch_.keys + keys.count * elements,
        scratch_.keys + hwy::DivCeil(keys.count, Product::kKeyRows) * Product::kKeyRows * elements,
        0.0f);
    if constexpr (Product::kTerms == 1) {
      for (int64_t j = 0; j < keys.count; ++j) {
        LoadRow(task_.dtype, task_.k.data, index(task_.k, j), task_.head_dim, 8,
                scratch_.keys + j * elements);
      }
      for (int64_t j = 0; j < keys.count; ++j) {
        LoadRow(task_.dtype, task_.v.data, index(task_.v, j), task_.value_dim, 8 * kRows,
                scratch_.values + 8 * j);
      }
    } else {
      least_ = kNoBFloat16;
      const auto* k = static_cast<const uint16_t*>(task_.k.data);
      const auto* v = static_cast<const uint16_t*>(task_.v.data);
      for (int64_t j = 0; j < keys.count; ++j) {
        const uint16_t* row = k + index(task_.k, j);
        std::memcpy(scratch_.keys + j * elements, row,
                    static_cast<size_t>(task_.head_dim) * sizeof(uint16_t));
        std::fill(scratch_.keys + j * elements + task_.head_dim / Product::kTerms,
                  scratch_.keys + (j + 1) * elements, 0.0f);
        least_ = std::min(least_, LeastNonzero(row, task_.head_dim));
      }
      // [kPairs][value_dim], or the lane products' layout.
      float* pairs = Product::kTiles ? scratch_.rows : scratch_.values;
      const int64_t next = Product::kTiles ? task_.value_dim : 8;
      const int64_t next_dims = Product::kTiles ? 8 : 8 * kRows;
      for (int64_t j = 0; j < keys.count; j += 2) {
        PairRows(v + index(task_.v, j), j + 1 < keys.count ? v + index(task_.v, j + 1) : kNoRow,
                 task_.value_dim, next_dims, pairs + next * (j / 2));
      }
      if constexpr (Product::kTiles) TurnPairs(keys.count);
    }
    if (careful) TakeOddValues(keys);
  }

  // Part `part` of `parts` of the rows of the key tile after `keys`. Packing reads strided rows
  // faster than a processor prefetches them.
  ComingRows Coming(const KeyRange& keys, int64_t key_end, int64_t part, int64_t parts) const {
    const int64_t begin = keys.begin + keys.count;
    const int64_t count = std::max<int64_t>(0, std::min(kKeyTile, key_end - begin));
    const int64_t bytes = ElementBytes(task_.dtype);
    const int64_t first = count * part / parts;
    const auto row = [&](const ConstView& view) {
      return static_cast<const char*>(view.data) +
             (keys.batch * view.batch_stride + (begin + first) * view.row_stride) * bytes;
    };
    return {.keys = row(task_.k),
            .values = row(task_.v),
            .key_stride = task_.k.row_stride * bytes,
            .value_stride = task_.v.row_stride * bytes,
            .key_bytes = task_.head_dim * bytes,
            .value_bytes = task_.value_dim * bytes,
            .count = count * (part + 1) / parts - first};
  }

  bool HasNonFiniteValues(int64_t batch, int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end; ++j) {
      const int64_t row = batch * task_.v.batch_stride + j * task_.v.row_stride;
      for (int64_t x = 0; x < task_.value_dim; ++x) {
        if (!std::isfinite(LoadElement(task_.dtype, task_.v.data, row + x))) return true;
      }
    }
    return false;
  }

  // Values of the tile that are not finite, after a careful Pack.
  std::span<const NonFiniteValue> non_finite() const { return non_finite_; }

  // The least magnitude of a key's nonzero number, as bfloat16's bits; 16-bit products only.
  uint16_t least() const { return least_; }

 private:
  static constexpr int64_t kKeyTile = Product::kKeyTile;
  static constexpr int64_t kPairs = kKeyTile / 2;
  static constexpr int64_t kRows = kValueRows<Product>;

  // Turns scratch_.rows, [pairs of keys][value_dim], into scratch_.values, tiles of 16 dims.
  void TurnPairs(int64_t count) {
    const int64_t dim = task_.value_dim;
    const int64_t whole = dim / kTileRows * kTileRows;
    std::fill(scratch_.rows + (count + 1) / 2 * dim, scratch_.rows + kPairs * dim, 0.0f);
    Transpose(scratch_.rows, kPairs, dim, scratch_.values);
    if (whole == dim) return;
    float* rest = scratch_.values + whole * kPairs;
    std::copy_n(rest, 8 * kPairs, rest + 8 * kPairs);
    std::fill_n(rest, 8 * kPairs, 0.0f);
  }

  // Lists values of the packed tile that are not finite, and makes them 0.
  void TakeOddValues(const KeyRange& keys) {
    non_finite_.clear();
    for (int64_t j = 0; j < keys.count; ++j) {
      const int64_t row = keys.batch * task_.v.batch_stride + (keys.begin + j) * task_.v.row_stride;
      for (int64_t x = 0; x < task_.value_dim; ++x) {
        const float value = LoadElement(task_.dtype, task_.v.data, row + x);
        if (std::isfinite(value)) continue;
        non_finite_.push_back({.j = j, .x = x, .value = value});
        if constexpr (Product::kTerms == 1) {
          scratch_.values[x / 8 * 8 * kRows + 8 * j + x % 8] = 0.0f;
        } else {
          const int64_t at = Product::kTiles ? ValueTileRow(task_.value_dim, x) * kPairs + j / 2
                                             : x / 8 * 8 * kRows + 8 * (j / 2) + x % 8;
          char* pair = reinterpret_cast<char*>(scratch_.values + at);
          std::memset(pair + j % 2 * sizeof(uint16_t), 0, sizeof(uint16_t));
        }
      }
    }
  }

  const AttentionTask& task_;
  AttentionScratch& scratch_;
  std::vector<NonFiniteValue> non_finite_;
  uint16_t least_ = kNoBFloat16;
};

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#endif  // HILBERT_RING_DEVICE_CPU_PACKED_KEYS_INL_H_
