#include "tests/unit/device/mirrored_device.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring {
namespace {

// Addresses keep their remainder by this, so aligned addresses stay aligned and others unaligned.
constexpr uintptr_t kCongruence = 64;

// Host memory of tasks, as intervals of addresses.
class Mirror {
 public:
  explicit Mirror(Device& device) : device_(device) {}

  void Name(const void* data, int64_t bytes) {
    if (data == nullptr || bytes <= 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    intervals_.push_back({begin, begin + static_cast<uintptr_t>(bytes)});
  }

  absl::Status CopyIn() {
    std::sort(intervals_.begin(), intervals_.end());
    std::vector<std::pair<uintptr_t, uintptr_t>> merged;
    for (const auto& interval : intervals_) {
      if (!merged.empty() && interval.first <= merged.back().second) {
        merged.back().second = std::max(merged.back().second, interval.second);
      } else {
        merged.push_back(interval);
      }
    }
    intervals_ = std::move(merged);
    for (const auto& [begin, end] : intervals_) {
      const uintptr_t ahead = begin % kCongruence;
      auto buffer = device_.Allocate(static_cast<int64_t>(end - begin + ahead));
      if (!buffer.ok()) return buffer.status();
      std::byte* const data = (*buffer)->data() + ahead;
      absl::Status status = device_.CopyIn(data, reinterpret_cast<const void*>(begin),
                                           static_cast<int64_t>(end - begin));
      if (!status.ok()) return status;
      places_.push_back(data);
      buffers_.push_back(*std::move(buffer));
    }
    return absl::OkStatus();
  }

  // Replaces an address in host memory by its address on the device.
  template <typename T>
  void Translate(T*& data) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    for (size_t i = 0; i < intervals_.size(); ++i) {
      if (address >= intervals_[i].first && address < intervals_[i].second) {
        data = reinterpret_cast<T*>(const_cast<std::byte*>(places_[i]) +
                                    (address - intervals_[i].first));
        return;
      }
    }
  }

  absl::Status CopyOut() {
    absl::Status status;
    for (size_t i = 0; i < intervals_.size(); ++i) {
      const auto [begin, end] = intervals_[i];
      status.Update(device_.CopyOut(reinterpret_cast<void*>(begin), places_[i],
                                    static_cast<int64_t>(end - begin)));
    }
    return status;
  }

 private:
  Device& device_;
  std::vector<std::pair<uintptr_t, uintptr_t>> intervals_;
  std::vector<std::byte*> places_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Bytes from the first element of a view to its last.
template <typename View>
int64_t Extent(const View& view, int64_t batch, int64_t rows, int64_t heads, int64_t dim,
               int64_t element) {
  if (batch <= 0 || rows <= 0 || heads <= 0) return 0;
  return ((batch - 1) * view.batch_stride + (rows - 1) * view.row_stride +
          (heads - 1) * view.head_stride + dim) *
         element;
}

int64_t Extent(const PositionsView& view, int64_t batch, int64_t rows) {
  if (batch <= 0 || rows <= 0) return 0;
  return ((batch - 1) * view.batch_stride + (rows - 1) * view.row_stride + 1) * 8;
}

int64_t Extent(const CoordinatesView& view, int64_t batch, int64_t rows, int axes) {
  if (batch <= 0 || rows <= 0) return 0;
  return ((batch - 1) * view.batch_stride + (rows - 1) * view.row_stride + axes) * 4;
}

// Calls at(address, bytes) for all memory of a task.
template <typename At>
void Parts(AttentionTask& t, const At& at) {
  const int64_t element = ElementBytes(t.dtype);
  at(t.q.data, Extent(t.q, t.batch, t.query_rows, t.heads, t.head_dim, element));
  at(t.k.data, Extent(t.k, t.batch, t.key_rows, 1, t.head_dim, element));
  at(t.v.data, Extent(t.v, t.batch, t.key_rows, 1, t.value_dim, element));
  at(t.out.data,
     Extent(t.out, t.batch, t.query_rows, t.heads, t.value_dim, ElementBytes(t.out_dtype)));
  at(t.lse.data, Extent(t.lse, t.batch, t.query_rows, t.heads, 1, sizeof(float)));
  at(t.state.max, Extent(t.state, t.batch, t.query_rows, t.heads, 1, sizeof(float)));
  at(t.state.sum, Extent(t.state, t.batch, t.query_rows, t.heads, 1, sizeof(float)));
  at(t.query_positions.data, Extent(t.query_positions, t.batch, t.query_rows));
  at(t.key_positions.data, Extent(t.key_positions, t.batch, t.key_rows));
  at(t.query_coordinates.data, Extent(t.query_coordinates, t.batch, t.query_rows, t.change.axes));
  at(t.key_coordinates.data, Extent(t.key_coordinates, t.batch, t.key_rows, t.change.axes));
  at(t.change.slopes, t.heads * static_cast<int64_t>(sizeof(float)));
}

template <typename At>
void Parts(MergeTask& t, const At& at) {
  at(t.values.data, Extent(t.values, t.batch, t.rows, t.heads, t.value_dim, sizeof(float)));
  at(t.part.max, Extent(t.part, t.batch, t.rows, t.heads, 1, sizeof(float)));
  at(t.part.sum, Extent(t.part, t.batch, t.rows, t.heads, 1, sizeof(float)));
  at(t.out.data, Extent(t.out, t.batch, t.rows, t.heads, t.value_dim, sizeof(float)));
  at(t.state.max, Extent(t.state, t.batch, t.rows, t.heads, 1, sizeof(float)));
  at(t.state.sum, Extent(t.state, t.batch, t.rows, t.heads, 1, sizeof(float)));
}

template <typename At>
void Parts(FinalizeTask& t, const At& at) {
  at(t.from.data, Extent(t.from, t.batch, t.rows, t.heads, t.value_dim, sizeof(float)));
  at(t.to.data, Extent(t.to, t.batch, t.rows, t.heads, t.value_dim, ElementBytes(t.to_dtype)));
  at(t.state.max, Extent(t.state, t.batch, t.rows, t.heads, 1, sizeof(float)));
  at(t.state.sum, Extent(t.state, t.batch, t.rows, t.heads, 1, sizeof(float)));
  at(t.lse.data, Extent(t.lse, t.batch, t.rows, t.heads, 1, sizeof(float)));
  at(t.sinks, t.heads * static_cast<int64_t>(sizeof(float)));
}

template <typename At>
void Parts(PackTask& t, const At& at) {
  if (t.rows <= 0 || t.heads <= 0) return;
  at(t.from, (t.rows - 1) * t.row_stride + (t.heads - 1) * t.head_stride + t.head_bytes);
  at(t.to, t.rows * t.heads * t.head_bytes);
}

class MirroredDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  bool host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    auto buffer = device().Allocate(bytes);
    if (buffer.ok() && bytes > 0) {
      const std::lock_guard lock(mutex_);
      own_[reinterpret_cast<uintptr_t>((*buffer)->data())] = bytes;
    }
    return buffer;
  }

  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> given,
                                       const AttendControl& control) override {
    AttendFigures figures;
    absl::Status status = OnMirror(given, [&](std::span<const AttentionTask> tasks) {
      auto attended = device().Attend(tasks, control);
      if (attended.ok()) figures = *attended;
      return attended.status();
    });
    if (!status.ok()) return status;
    return figures;
  }

  absl::Status Merge(std::span<const MergeTask> given) override {
    return OnMirror(given, [&](const auto& tasks) { return device().Merge(tasks); });
  }

  absl::Status Finalize(std::span<const FinalizeTask> given) override {
    return OnMirror(given, [&](const auto& tasks) { return device().Finalize(tasks); });
  }

  absl::Status Pack(std::span<const PackTask> given) override {
    return OnMirror(given, [&](const auto& tasks) { return device().Pack(tasks); });
  }

 private:
  template <typename Task, typename Run>
  absl::Status OnMirror(std::span<const Task> given, const Run& run) {
    std::vector<Task> tasks(given.begin(), given.end());
    Mirror mirror(device());
    for (Task& task : tasks) {
      Parts(task, [&](auto*& data, int64_t bytes) {
        if (!OnDevice(data)) mirror.Name(data, bytes);
      });
    }
    if (absl::Status status = mirror.CopyIn(); !status.ok()) return status;
    for (Task& task : tasks) {
      Parts(task, [&](auto*& data, int64_t) { mirror.Translate(data); });
    }
    absl::Status status = run(std::span<const Task>(tasks));
    status.Update(mirror.CopyOut());
    return status;
  }

  bool OnDevice(const void* data) const {
    const std::lock_guard lock(mutex_);
    auto after = own_.upper_bound(reinterpret_cast<uintptr_t>(data));
    if (after == own_.begin()) return false;
    --after;
    return reinterpret_cast<uintptr_t>(data) < after->first + static_cast<uintptr_t>(after->second);
  }

  mutable std::mutex mutex_;
  std::map<uintptr_t, int64_t> own_;  // allocated buffers, freed ones too
};

}  // namespace

std::unique_ptr<Device> Mirrored(std::unique_ptr<Device> device) {
  if (device->host_memory()) return device;
  return std::make_unique<MirroredDevice>(std::move(device));
}

}  // namespace hilbert_ring
