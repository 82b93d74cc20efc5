// Tasks of few lanes over many keys. Their keys are split into parts that threads share, and the
// parts' results are merged in the order of keys. Parts depend on their task alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/attention.h"

namespace hilbert_ring {

// Some batches of alike tasks [begin, end) of a call, whose keys and values are neighbouring heads
// of the same rows.
struct KeySplit {
  size_t begin = 0, end = 0;
  int64_t first_batch = 0, batches = 0;
  int64_t parts = 0;        // of each batch
  int64_t part_keys = 0;    // of all parts but the last
  bool by_rows = false;     // AttendRowsFunction computes it
  int64_t first_float = 0;  // of its parts' results

  int64_t tasks() const { return static_cast<int64_t>(end - begin); }
};

// Returns whether a task has so few lanes and so many keys that these are split.
bool HasFewRows(const AttentionTask& task);

// Splits of a call's tasks that have few rows.
std::vector<KeySplit> SplitKeys(std::span<const AttentionTask> tasks);

// The first splits whose results take 8 MiB at most together; at least one.
std::span<KeySplit> FirstWave(std::span<const AttentionTask> tasks, std::span<KeySplit> splits);

// Results of the parts of a wave's splits, as accumulators. Batches are numbered from a split's
// first on.
class PartialResults {
 public:
  PartialResults(std::span<const AttentionTask> tasks, std::span<KeySplit> wave);

  // Makes a part's results the identity of the merge.
  void Clear(const KeySplit& split, int64_t batch, int64_t part) const;

  // The split's tasks with keys [begin, begin + count) of one batch, which merge into a part.
  std::vector<AttentionTask> TasksOf(const KeySplit& split, int64_t batch, int64_t part,
                                     int64_t begin, int64_t count) const;

  // Merges a part into the task's own results, or into the first part's if the task overwrites out:
  // these are finalized then. task: from the split's first on.
  MergeTask MergeOf(const KeySplit& split, int64_t task, int64_t part) const;
  FinalizeTask FinalizeOf(const KeySplit& split, int64_t task) const;

  int64_t key_rows(const KeySplit& split) const { return tasks_[split.begin].key_rows; }

 private:
  struct Accumulators {
    MutableView out;
    StateView state;
  };

  // With the batch strides of the parts.
  Accumulators ResultOf(const KeySplit& split, int64_t task, int64_t part) const;

  std::span<const AttentionTask> tasks_;
  std::unique_ptr<float[]> floats_;
};

}  // namespace hilbert_ring
