// Batches of tasks with few queries and few keys, which threads compute in packs. A batch's results
// do not depend on its pack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/work_list.h"

namespace hilbert_ring {

// Returns whether a task's batches are short.
bool IsShort(const AttentionTask& task);

// The short batches of a call's tasks, numbered in the order of memory: batches of neighbouring
// tasks, which are heads of the same rows, alternate.
class ShortBatches {
 public:
  // The tasks outlive it.
  explicit ShortBatches(std::span<const AttentionTask> tasks);

  int64_t total() const { return batches_.total(); }

  // Calls visit(pack) with batches [begin, end) in packs that AttendShortFunction takes, until it
  // returns false.
  bool ForEachPack(int64_t begin, int64_t end,
                   absl::FunctionRef<bool(std::span<const LaneTile>)> visit) const;

 private:
  // Tasks [begin, end) with as many batches.
  struct Neighbours {
    size_t begin = 0, end = 0;
  };

  std::span<const AttentionTask> tasks_;
  std::vector<Neighbours> neighbours_;
  WorkList batches_;
};

}  // namespace hilbert_ring
