#include "engine/device/cpu/short_batches.h"

namespace hilbert_ring {
namespace {

bool GoTogether(const AttentionTask& a, const AttentionTask& b) {
  return a.dtype == b.dtype && a.head_dim == b.head_dim && a.value_dim == b.value_dim &&
         a.scale == b.scale && a.change.softcap == b.change.softcap &&
         (a.change.slopes == nullptr) == (b.change.slopes == nullptr) &&
         a.change.row_distance == b.change.row_distance;
}

}  // namespace

bool IsShort(const AttentionTask& task) {
  const int64_t lanes = task.query_rows * task.heads;
  const bool compares_places = task.query_positions.data != nullptr || task.change.axes > 0;
  return lanes > 0 && lanes <= kMostShortLanes && task.key_rows > 0 &&
         task.key_rows <= kMostShortKeys && !compares_places;
}

ShortBatches::ShortBatches(std::span<const AttentionTask> tasks) : tasks_(tasks), batches_(0) {
  for (size_t t = 0; t < tasks.size();) {
    const size_t begin = t++;
    if (!IsShort(tasks[begin])) continue;
    while (t < tasks.size() && IsShort(tasks[t]) && tasks[t].batch == tasks[begin].batch) ++t;
    neighbours_.push_back({begin, t});
    batches_.Add(tasks[begin].batch * static_cast<int64_t>(t - begin));
  }
}

bool ShortBatches::ForEachPack(int64_t begin, int64_t end,
                               absl::FunctionRef<bool(std::span<const LaneTile>)> visit) const {
  LaneTile pack[kMaxRowSlots / 4];  // a batch has 4 slots at least
  size_t count = 0;
  int64_t slots = 0;
  const bool all = batches_.ForEach(begin, end, [&](size_t index, int64_t piece) {
    const Neighbours& of = neighbours_[index];
    const auto tasks = static_cast<int64_t>(of.end - of.begin);
    const AttentionTask& task = tasks_[of.begin + static_cast<size_t>(piece % tasks)];
    if (count > 0 && (slots + RowSlots(task) > kMaxRowSlots || !GoTogether(*pack->task, task))) {
      if (!visit({pack, count})) return false;
      count = 0;
      slots = 0;
    }
    pack[count++] = {.task = &task, .batch = piece / tasks, .end = task.query_rows * task.heads};
    slots += RowSlots(task);
    return true;
  });
  return all && (count == 0 || visit({pack, count}));
}

}  // namespace hilbert_ring
