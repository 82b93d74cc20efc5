#include "engine/device/cpu/few_rows.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "engine/device/cpu/attention_kernel.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kMostLanes = 64;  // from here on threads have tiles of lanes
constexpr int64_t kMostParts = 256;
constexpr int64_t kMostFloats = 2 << 20;  // of a wave's results
constexpr int64_t kRowBytes = 16384;      // of tasks that go together: a tile stays in a cache

// Keys of a part are a multiple of this. Merges of parts cost a few percent.
constexpr int64_t kPartStep = 1024;

// Keys for each lane of a part, at least: results are small beside keys and values.
constexpr int64_t kKeysPerLane = 64;

int64_t LanesOf(const AttentionTask& task) { return task.query_rows * task.heads; }

int64_t PaddedDim(const AttentionTask& task) {
  return (std::max(task.head_dim, task.value_dim) + 31) / 32 * 32;
}

// From more lanes on a tile pass is as fast: with pairs of bfloat16 at half as many (AVX-512, AMD
// EPYC Zen 4).
bool IsByRows(const AttentionTask& task) {
  return LanesOf(task) <= (task.dtype == DataType::kBFloat16 ? 16 : 32);
}

// The rows of both, at the distance of neighbouring heads.
bool AreNeighbours(const ConstView& a, const ConstView& b, int64_t bytes) {
  return static_cast<const std::byte*>(a.data) + bytes == b.data &&
         a.batch_stride == b.batch_stride && a.row_stride == b.row_stride;
}

template <typename View>
bool AreAlike(const View& a, const View& b) {
  return a.data == b.data && a.batch_stride == b.batch_stride && a.row_stride == b.row_stride;
}

// Returns whether a pass takes `b` after its neighbour `a`.
bool GoTogether(const AttentionTask& a, const AttentionTask& b) {
  const int64_t element = ElementBytes(a.dtype);
  return a.dtype == b.dtype && a.batch == b.batch && a.heads == b.heads &&
         a.query_rows == b.query_rows && a.key_rows == b.key_rows && a.head_dim == b.head_dim &&
         a.value_dim == b.value_dim && AreNeighbours(a.k, b.k, a.head_dim * element) &&
         AreNeighbours(a.v, b.v, a.value_dim * element) && a.scale == b.scale &&
         a.change.softcap == b.change.softcap &&
         (a.change.slopes == nullptr) == (b.change.slopes == nullptr) &&
         a.change.axes == b.change.axes && a.change.row_distance == b.change.row_distance &&
         a.mask == b.mask && a.diagonal_shift == b.diagonal_shift && a.left == b.left &&
         a.right == b.right && AreAlike(a.query_positions, b.query_positions) &&
         AreAlike(a.key_positions, b.key_positions) &&
         AreAlike(a.query_coordinates, b.query_coordinates) &&
         AreAlike(a.key_coordinates, b.key_coordinates);
}

int64_t MostTogether(const AttentionTask& task) {
  const int64_t bytes = (task.head_dim + task.value_dim) * ElementBytes(task.dtype);
  const int64_t slots = std::min(kMaxRowSlots, kMaxTileFloats / PaddedDim(task));
  return std::max<int64_t>(1, std::min(kRowBytes / bytes, slots / RowSlots(task)));
}

int64_t FloatsOf(std::span<const AttentionTask> tasks, const KeySplit& split) {
  const AttentionTask& task = tasks[split.begin];
  return split.tasks() * split.batches * split.parts * LanesOf(task) * (task.value_dim + 2);
}

// Parts of one batch of all tasks that may go together fit into a wave.
int64_t PartKeys(const AttentionTask& task) {
  const int64_t lanes = IsByRows(task) ? kMaxRowSlots : LanesOf(task);
  const int64_t most =
      std::clamp<int64_t>(kMostFloats / (lanes * (task.value_dim + 2)), 1, kMostParts);
  const int64_t least = std::max(kKeysPerLane * LanesOf(task), (task.key_rows + most - 1) / most);
  return (least + kPartStep - 1) / kPartStep * kPartStep;
}

template <typename View>
void Move(View& view, int64_t elements, int64_t bytes) {
  if (view.data == nullptr) return;
  view.data = reinterpret_cast<decltype(view.data)>(reinterpret_cast<uintptr_t>(view.data) +
                                                    static_cast<uintptr_t>(elements * bytes));
}

// A task's view from the split's first batch on.
template <typename View>
View FromBatch(View view, const KeySplit& split, int64_t bytes) {
  Move(view, split.first_batch * view.batch_stride, bytes);
  return view;
}
StateView FromBatch(StateView view, const KeySplit& split) {
  view.max += split.first_batch * view.batch_stride;
  view.sum += split.first_batch * view.batch_stride;
  return view;
}

}  // namespace

bool HasFewRows(const AttentionTask& task) {
  if (LanesOf(task) == 0 || LanesOf(task) > kMostLanes) return false;
  constexpr int64_t kLeastKeys = 256;  // of lanes by rows
  return task.key_rows >=
         std::max(kKeysPerLane * LanesOf(task), IsByRows(task) ? kLeastKeys : 2 * kPartStep);
}

std::vector<KeySplit> SplitKeys(std::span<const AttentionTask> tasks) {
  std::vector<KeySplit> splits;
  for (size_t t = 0; t < tasks.size();) {
    const AttentionTask& task = tasks[t];
    if (!HasFewRows(task)) {
      ++t;
      continue;
    }
    const bool by_rows = IsByRows(task);
    const size_t most = by_rows ? static_cast<size_t>(MostTogether(task)) : 1;
    const size_t begin = t++;
    while (t < tasks.size() && t - begin < most && GoTogether(tasks[t - 1], tasks[t])) ++t;
    KeySplit split{.begin = begin, .end = t, .by_rows = by_rows};
    split.part_keys = PartKeys(task);
    split.parts = (task.key_rows + split.part_keys - 1) / split.part_keys;
    split.batches = 1;
    const int64_t most_batches = std::max<int64_t>(1, kMostFloats / FloatsOf(tasks, split));
    for (; split.first_batch < task.batch; split.first_batch += split.batches) {
      split.batches = std::min(most_batches, task.batch - split.first_batch);
      splits.push_back(split);
    }
  }
  return splits;
}

std::span<KeySplit> FirstWave(std::span<const AttentionTask> tasks, std::span<KeySplit> splits) {
  int64_t floats = 0;
  size_t count = 0;
  while (count < splits.size()) {
    floats += FloatsOf(tasks, splits[count]);
    if (floats > kMostFloats && count > 0) break;
    ++count;
  }
  return splits.first(count);
}

PartialResults::PartialResults(std::span<const AttentionTask> tasks, std::span<KeySplit> wave)
    : tasks_(tasks) {
  int64_t floats = 0;
  for (KeySplit& split : wave) {
    split.first_float = floats;
    floats += FloatsOf(tasks, split);
  }
  floats_.reset(new float[static_cast<size_t>(floats)]);
}

PartialResults::Accumulators PartialResults::ResultOf(const KeySplit& split, int64_t task,
                                                      int64_t part) const {
  const AttentionTask& of = tasks_[split.begin + static_cast<size_t>(task)];
  const int64_t lanes = LanesOf(of);
  const int64_t floats = lanes * (of.value_dim + 2);
  float* at =
      floats_.get() + split.first_float + (task * split.batches * split.parts + part) * floats;
  const int64_t batch_stride = split.parts * floats;
  float* max = at + lanes * of.value_dim;
  return {.out = {.data = at,
                  .batch_stride = batch_stride,
                  .row_stride = of.heads * of.value_dim,
                  .head_stride = of.value_dim},
          .state = {.max = max,
                    .sum = max + lanes,
                    .batch_stride = batch_stride,
                    .row_stride = of.heads,
                    .head_stride = 1}};
}

std::vector<AttentionTask> PartialResults::TasksOf(const KeySplit& split, int64_t batch,
                                                   int64_t part, int64_t begin,
                                                   int64_t count) const {
  std::vector<AttentionTask> parts(tasks_.begin() + static_cast<ptrdiff_t>(split.begin),
                                   tasks_.begin() + static_cast<ptrdiff_t>(split.end));
  const int64_t in_task = split.first_batch + batch;
  for (size_t t = 0; t < parts.size(); ++t) {
    AttentionTask& task = parts[t];
    const int64_t element = ElementBytes(task.dtype);
    Move(task.q, in_task * task.q.batch_stride, element);
    Move(task.k, in_task * task.k.batch_stride + begin * task.k.row_stride, element);
    Move(task.v, in_task * task.v.batch_stride + begin * task.v.row_stride, element);
    for (PositionsView* of : {&task.query_positions, &task.key_positions}) {
      const int64_t first = of == &task.key_positions ? begin * of->row_stride : 0;
      Move(*of, in_task * of->batch_stride + first, sizeof(int64_t));
    }
    for (CoordinatesView* of : {&task.query_coordinates, &task.key_coordinates}) {
      const int64_t first = of == &task.key_coordinates ? begin * of->row_stride : 0;
      Move(*of, in_task * of->batch_stride + first, sizeof(float));
    }
    task.batch = 1;
    task.key_rows = count;
    task.diagonal_shift -= begin;
    task.result = Result::kMerge;
    const auto [out, state] = ResultOf(split, static_cast<int64_t>(t), part);
    task.out = out;
    task.state = state;
    Move(task.out, batch * out.batch_stride, sizeof(float));
    task.state.max += batch * state.batch_stride;
    task.state.sum += batch * state.batch_stride;
  }
  return parts;
}

void PartialResults::Clear(const KeySplit& split, int64_t batch, int64_t part) const {
  const AttentionTask& task = tasks_[split.begin];
  for (int64_t t = 0; t < split.tasks(); ++t) {
    const auto [out, state] = ResultOf(split, t, part);
    const int64_t at = batch * out.batch_stride;
    std::fill_n(static_cast<float*>(out.data) + at, LanesOf(task) * task.value_dim, 0.0f);
    std::fill_n(state.max + at, LanesOf(task), -std::numeric_limits<float>::infinity());
    std::fill_n(state.sum + at, LanesOf(task), 0.0f);
  }
}

MergeTask PartialResults::MergeOf(const KeySplit& split, int64_t task, int64_t part) const {
  const AttentionTask& of = tasks_[split.begin + static_cast<size_t>(task)];
  const Accumulators from = ResultOf(split, task, part);
  const Accumulators first = ResultOf(split, task, 0);
  const bool merges = of.result == Result::kMerge;
  return {.batch = split.batches,
          .rows = of.query_rows,
          .heads = of.heads,
          .value_dim = of.value_dim,
          .out = merges ? FromBatch(of.out, split, sizeof(float)) : first.out,
          .state = merges ? FromBatch(of.state, split) : first.state,
          .scale = of.StateScale(),
          .values = {.data = from.out.data,
                     .batch_stride = from.out.batch_stride,
                     .row_stride = from.out.row_stride,
                     .head_stride = from.out.head_stride},
          .part = from.state};
}

FinalizeTask PartialResults::FinalizeOf(const KeySplit& split, int64_t task) const {
  const AttentionTask& of = tasks_[split.begin + static_cast<size_t>(task)];
  const auto [out, state] = ResultOf(split, task, 0);
  return {.batch = split.batches,
          .rows = of.query_rows,
          .heads = of.heads,
          .value_dim = of.value_dim,
          .from = {.data = out.data,
                   .batch_stride = out.batch_stride,
                   .row_stride = out.row_stride,
                   .head_stride = out.head_stride},
          .to_dtype = of.out_dtype,
          .to = FromBatch(of.out, split, ElementBytes(of.out_dtype)),
          .scale = of.out_scale,
          .state = state,
          .lse = FromBatch(of.lse, split, sizeof(float)),
          .score_scale = of.StateScale()};
}

}  // namespace hilbert_ring
