#include "engine/device/cpu/key_visibility.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace hilbert_ring {

KeyVisibility::KeyVisibility(const AttentionTask& task, const RowRange& rows)
    : task_(task), rows_(rows), key_end_(task.key_rows) {
  if (task.mask == Mask::kDiagonal) {
    const auto clamped = [&](__int128 shift) {
      return static_cast<int64_t>(std::clamp<__int128>(shift, -task.query_rows, task.key_rows));
    };
    lower_ = clamped(__int128{task.diagonal_shift} - task.left);
    upper_ = clamped(__int128{task.diagonal_shift} + task.right);
    key_begin_ = std::clamp<int64_t>(rows.first + lower_, 0, task.key_rows);
    key_end_ = std::clamp<int64_t>(rows.last + upper_ + 1, key_begin_, task.key_rows);
    for (int64_t j = 0; j < kMaxKeyTile; ++j) ranks_[j] = static_cast<float>(j);
  }
  if (task.mask == Mask::kPositions) {
    least_query_ = std::numeric_limits<int64_t>::max();
    greatest_query_ = std::numeric_limits<int64_t>::min();
    for (int64_t row = rows.first; row <= rows.last; ++row) {
      least_query_ = std::min(least_query_, QueryPosition(row));
      greatest_query_ = std::max(greatest_query_, QueryPosition(row));
    }
  }
}

int64_t KeyVisibility::QueryPosition(int64_t row) const {
  const PositionsView& view = task_.query_positions;
  return view.data[rows_.batch * view.batch_stride + row * view.row_stride];
}

Visible KeyVisibility::See(const KeyRange& keys) {
  keys_ = keys;
  if (task_.mask == Mask::kNone) return Visible::kEverything;
  if (task_.mask == Mask::kDiagonal) {
    if (keys.begin >= key_end_ || keys.begin + keys.count <= key_begin_) return Visible::kNothing;
    return Limit(rows_.first) == keys.count && !HasStarts() ? Visible::kEverything : Visible::kSome;
  }
  const PositionsView& view = task_.key_positions;
  const int64_t* data = view.data + keys.batch * view.batch_stride + keys.begin * view.row_stride;
  for (int64_t j = 0; j < keys.count; ++j) positions_[j] = data[j * view.row_stride];
  const auto [least, greatest] = std::minmax_element(positions_, positions_ + keys.count);
  if (*least > greatest_query_) return Visible::kNothing;
  if (*greatest <= least_query_) return Visible::kEverything;
  std::array<int64_t, kMaxKeyTile> unsorted;
  std::copy_n(positions_, keys.count, unsorted.begin());
  std::sort(positions_, positions_ + keys.count);
  for (int64_t j = 0; j < keys.count; ++j) {
    ranks_[j] = static_cast<float>(
        std::lower_bound(positions_, positions_ + keys.count, unsorted[j]) - positions_);
  }
  return Visible::kSome;
}

int64_t KeyVisibility::Limit(int64_t row) const {
  if (task_.mask == Mask::kDiagonal) {
    return std::clamp<int64_t>(row + upper_ + 1 - keys_.begin, 0, keys_.count);
  }
  const int64_t* end = positions_ + keys_.count;
  return std::upper_bound(positions_, end, QueryPosition(row)) - positions_;
}

int64_t KeyVisibility::Start(int64_t row) const {
  if (task_.mask != Mask::kDiagonal) return 0;
  return std::clamp<int64_t>(row + lower_ - keys_.begin, 0, keys_.count);
}

}  // namespace hilbert_ring
