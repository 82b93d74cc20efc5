#include "client/cpp/resend_queue.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

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
  const InputTensor* const input = tensors_.Find(resend.tensor());
  if (input == nullptr) {
    return Broken(absl::StrCat("tensor is ", static_cast<int>(resend.tensor()),
                               ", of which the job sends nothing"));
  }
  if (resend.ranges_size() == 0) return Broken("no ranges");
  int64_t left = input->rows;
  for (const v1::Resend::Range& range : resend.ranges()) {
    const std::string named = absl::StrCat(wire::TensorName(resend.tensor()), ": ", range.rows(),
                                           " rows from row ", range.first_row());
    if (range.rows() < 1 || range.rows() > input->rows || range.first_row() < 0 ||
        range.first_row() > input->rows - range.rows()) {
      return Broken(absl::StrCat(named, ", expected rows in [0, ", input->rows, ")"));
    }
    if (range.rows() > left) {
      return Broken(absl::StrCat(named, " and those before are more than its ", input->rows));
    }
    left -= range.rows();
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ResendQueue::Add(const v1::Resend& resend) {
  RETURN_IF_ERROR(Check(resend));
  RowRanges& waiting = waiting_[resend.tensor()];
  int64_t rows = 0;
  for (const v1::Resend::Range& range : resend.ranges()) {
    rows += waiting.Add({.first_row = range.first_row(), .rows = range.rows()});
    size_t ranges = 0;
    for (const auto& [tensor, of_tensor] : waiting_) ranges += of_tensor.size();
    if (ranges > kMaxRanges) {
      return Broken(absl::StrCat("more than ", kMaxRanges, " ranges are waiting"));
    }
  }
  return rows * tensors_.Find(resend.tensor())->row_bytes;
}

ResendQueue::Rows ResendQueue::Take(const std::function<int64_t(const InputTensor&)>& most_rows) {
  const auto waits = [this](const InputTensor& input) {
    const auto rows = waiting_.find(input.tensor);
    return rows != waiting_.end() && !rows->second.empty();
  };
  const auto ahead = std::ranges::find_if(tensors_.ahead, waits);
  const InputTensor* next = ahead == tensors_.ahead.end() ? nullptr : &*ahead;
  if (next == nullptr) {
    for (const InputTensor& input : tensors_.bands) {
      if (!waits(input)) continue;
      const bool lower = next == nullptr || waiting_.at(input.tensor).first_row() <
                                                waiting_.at(next->tensor).first_row();
      if (lower) next = &input;
    }
  }
  return {.input = next, .range = waiting_.at(next->tensor).Take(most_rows(*next))};
}

bool ResendQueue::empty() const {
  return std::ranges::all_of(waiting_, [](const auto& tensor) { return tensor.second.empty(); });
}

}  // namespace hilbert_ring::client
