#include "client/cpp/resend_queue.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

static_assert(v1::TENSOR_Q == v1::TENSOR_COORDS + 1 && v1::TENSOR_K == v1::TENSOR_COORDS + 2 &&
              v1::TENSOR_V == v1::TENSOR_COORDS + 3);

size_t IndexOf(v1::Tensor tensor) { return static_cast<size_t>(tensor - v1::TENSOR_COORDS); }

bool IsInput(const JobSpec& spec, v1::Tensor tensor) {
  if (tensor == v1::TENSOR_COORDS) return spec.ordering && spec.ordering->coordinate_axes > 0;
  return tensor == v1::TENSOR_Q || tensor == v1::TENSOR_K || tensor == v1::TENSOR_V;
}

absl::Status Broken(const std::string& what) {
  return absl::InternalError(absl::StrCat("the service broke the protocol: Resend: ", what));
}

}  // namespace

int64_t RowRanges::Add(Range range) {
  int64_t first = range.first_row;
  int64_t end = range.first_row + range.rows;
  int64_t known = 0;
  // From the last range that begins before `first`, or at it, on.
  auto touched = ends_.upper_bound(first);
  if (touched != ends_.begin() && std::prev(touched)->second >= first) --touched;
  while (touched != ends_.end() && touched->first <= end) {
    known += std::max<int64_t>(0, std::min(range.first_row + range.rows, touched->second) -
                                      std::max(range.first_row, touched->first));
    first = std::min(first, touched->first);
    end = std::max(end, touched->second);
    touched = ends_.erase(touched);
  }
  ends_[first] = end;
  return range.rows - known;
}

RowRanges::Range RowRanges::Take(int64_t most_rows) {
  const auto [first, end] = *ends_.begin();
  ends_.erase(ends_.begin());
  const Range range{.first_row = first, .rows = std::min(most_rows, end - first)};
  if (first + range.rows < end) ends_[first + range.rows] = end;
  return range;
}

absl::Status ResendQueue::Check(const v1::Resend& resend) const {
  if (resend.attempt() != attempt_) {
    return Broken(absl::StrCat("attempt is ", resend.attempt(), ", this one is ", attempt_));
  }
  if (!IsInput(spec_, resend.tensor())) {
    return Broken(absl::StrCat("tensor is ", static_cast<int>(resend.tensor()),
                               ", of which the job sends nothing"));
  }
  if (resend.ranges_size() == 0) return Broken("no ranges");
  int64_t left = spec_.tokens;
  for (const v1::Resend::Range& range : resend.ranges()) {
    const std::string named = absl::StrCat(wire::TensorName(resend.tensor()), ": ", range.rows(),
                                           " rows from row ", range.first_row());
    if (range.rows() < 1 || range.rows() > spec_.tokens || range.first_row() < 0 ||
        range.first_row() > spec_.tokens - range.rows()) {
      return Broken(absl::StrCat(named, ", expected rows in [0, ", spec_.tokens, ")"));
    }
    if (range.rows() > left) {
      return Broken(absl::StrCat(named, " and those before are more than its ", spec_.tokens));
    }
    left -= range.rows();
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ResendQueue::Add(const v1::Resend& resend) {
  RETURN_IF_ERROR(Check(resend));
  RowRanges& waiting = waiting_[IndexOf(resend.tensor())];
  int64_t rows = 0;
  for (const v1::Resend::Range& range : resend.ranges()) {
    rows += waiting.Add({.first_row = range.first_row(), .rows = range.rows()});
    size_t ranges = 0;
    for (const RowRanges& tensor : waiting_) ranges += tensor.size();
    if (ranges > kMaxRanges) {
      return Broken(absl::StrCat("more than ", kMaxRanges, " ranges are waiting"));
    }
  }
  return rows * wire::TensorRowBytes(spec_, resend.tensor());
}

ResendQueue::Rows ResendQueue::Take(const std::function<int64_t(v1::Tensor)>& most_rows) {
  size_t next = IndexOf(v1::TENSOR_COORDS);
  if (waiting_[next].empty()) {
    int64_t lowest = spec_.tokens;
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
      const RowRanges& rows = waiting_[IndexOf(tensor)];
      if (rows.empty() || rows.first_row() >= lowest) continue;
      lowest = rows.first_row();
      next = IndexOf(tensor);
    }
  }
  const auto tensor = static_cast<v1::Tensor>(v1::TENSOR_COORDS + static_cast<int>(next));
  return {.tensor = tensor, .range = waiting_[next].Take(most_rows(tensor))};
}

bool ResendQueue::empty() const {
  return std::all_of(waiting_.begin(), waiting_.end(),
                     [](const RowRanges& tensor) { return tensor.empty(); });
}

}  // namespace hilbert_ring::client
