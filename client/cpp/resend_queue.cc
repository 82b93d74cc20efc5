#include "client/cpp/resend_queue.h"

#include <algorithm>
#include <iterator>

namespace hilbert_ring::client {
int64_t RowRanges::Add(Range range) {
  int64_t first = range.first_row;
  int64_t end = range.first_row + range.rows;
  int64_t known = 0;
  // Start at the last range that begins at or before `first`.
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

int64_t ResendQueue::Add(const v1::Resend& resend) {
  RowRanges& waiting = waiting_[resend.tensor()];
  int64_t rows = 0;
  for (const v1::Resend::Range& range : resend.ranges()) {
    rows += waiting.Add({.first_row = range.first_row(), .rows = range.rows()});
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
