// The pieces of several tasks, numbered consecutively, so that threads can claim ranges of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hilbert_ring {

class WorkList {
 public:
  explicit WorkList(size_t tasks) { ends_.reserve(tasks); }

  void Add(int64_t pieces) { ends_.push_back(total() + pieces); }

  int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }

  // Calls visit(task, piece within the task) for pieces [begin, end) until it returns false.
  template <typename Visit>
  bool ForEach(int64_t begin, int64_t end, Visit&& visit) const {
    size_t task = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    for (int64_t i = begin; i < end; ++i) {
      while (i >= ends_[task]) ++task;
      const int64_t first = task == 0 ? 0 : ends_[task - 1];
      if (!visit(task, i - first)) return false;
    }
    return true;
  }

 private:
  std::vector<int64_t> ends_;  // of task t's pieces
};

}  // namespace hilbert_ring
