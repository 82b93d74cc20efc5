#include "tests/unit/device/mirrored_device.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring {
namespace {

// Addresses stay congruent by this, so that what is aligned stays so and what is not does not.
constexpr uintptr_t kCongruence = 64;

// Host memory that tasks name, as intervals of addresses.
class Mirror {
 public:
  explicit Mirror(Device& device) : device_(device) {}

  void Name(const void* data, int64_t bytes) {
    if (data == nullptr || bytes <= 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    intervals_.push_back({begin, begin + static_cast<uintptr_t>(bytes)});
  }

  template <typename View>
  void Name(const View& view, int64_t batch, int64_t rows, int64_t heads, int64_t dim,
            int64_t element) {
    if (batch <= 0 || rows <= 0 || heads <= 0) return;
    Name(view.data, ((batch - 1) * view.batch_stride + (rows - 1) * view.row_stride +
                     (heads - 1) * view.head_stride + dim) *
                        element);
  }

  void Name(const PositionsView& view, int64_t batch, int64_t rows) {
    if (batch <= 0 || rows <= 0) return;
    Name(view.data, ((batch - 1) * view.batch_stride + (rows - 1) * view.row_stride + 1) * 8);
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

  // Where the device has what the host has at `data`.
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

void NameState(Mirror& mirror, const StateView& state, int64_t batch, int64_t rows, int64_t heads) {
  for (float* data : {state.max, state.sum}) {
    mirror.Name(LseView{data, state.batch_stride, state.row_stride, state.head_stride}, batch, rows,
                heads, 1, sizeof(float));
  }
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
    std::vector<AttentionTask> tasks(given.begin(), given.end());
    Mirror mirror(device());
    for (const AttentionTask& t : tasks) {
      if (OnDevice(t.q.data)) continue;
      const int64_t element = ElementBytes(t.dtype);
      mirror.Name(t.q, t.batch, t.query_rows, t.heads, t.head_dim, element);
      mirror.Name(t.k, t.batch, t.key_rows, 1, t.head_dim, element);
      mirror.Name(t.v, t.batch, t.key_rows, 1, t.value_dim, element);
      mirror.Name(t.out, t.batch, t.query_rows, t.heads, t.value_dim, ElementBytes(t.out_dtype));
      mirror.Name(t.lse, t.batch, t.query_rows, t.heads, 1, sizeof(float));
      NameState(mirror, t.state, t.batch, t.query_rows, t.heads);
      mirror.Name(t.query_positions, t.batch, t.query_rows);
      mirror.Name(t.key_positions, t.batch, t.key_rows);
    }
    if (absl::Status status = mirror.CopyIn(); !status.ok()) return status;
    for (AttentionTask& t : tasks) {
      mirror.Translate(t.q.data);
      mirror.Translate(t.k.data);
      mirror.Translate(t.v.data);
      mirror.Translate(t.out.data);
      mirror.Translate(t.lse.data);
      mirror.Translate(t.state.max);
      mirror.Translate(t.state.sum);
      mirror.Translate(t.query_positions.data);
      mirror.Translate(t.key_positions.data);
    }
    auto figures = device().Attend(tasks, control);
    if (absl::Status status = mirror.CopyOut(); !status.ok()) return status;
    return figures;
  }

  absl::Status AddZeroKeys(std::span<const ZeroKeysTask> given) override {
    std::vector<ZeroKeysTask> tasks(given.begin(), given.end());
    Mirror mirror(device());
    for (const ZeroKeysTask& t : tasks) {
      mirror.Name(t.out, t.batch, t.rows, t.heads, t.value_dim, sizeof(float));
      NameState(mirror, t.state, t.batch, t.rows, t.heads);
    }
    absl::Status status = mirror.CopyIn();
    for (ZeroKeysTask& t : tasks) {
      mirror.Translate(t.out.data);
      mirror.Translate(t.state.max);
      mirror.Translate(t.state.sum);
    }
    status.Update(device().AddZeroKeys(tasks));
    status.Update(mirror.CopyOut());
    return status;
  }

  absl::Status Finalize(std::span<const FinalizeTask> given) override {
    std::vector<FinalizeTask> tasks(given.begin(), given.end());
    Mirror mirror(device());
    for (const FinalizeTask& t : tasks) {
      mirror.Name(t.from, t.batch, t.rows, t.heads, t.value_dim, sizeof(float));
      mirror.Name(t.to, t.batch, t.rows, t.heads, t.value_dim, ElementBytes(t.to_dtype));
      NameState(mirror, t.state, t.batch, t.rows, t.heads);
      mirror.Name(t.lse, t.batch, t.rows, t.heads, 1, sizeof(float));
    }
    absl::Status status = mirror.CopyIn();
    for (FinalizeTask& t : tasks) {
      mirror.Translate(t.from.data);
      mirror.Translate(t.to.data);
      mirror.Translate(t.state.max);
      mirror.Translate(t.state.sum);
      mirror.Translate(t.lse.data);
    }
    status.Update(device().Finalize(tasks));
    status.Update(mirror.CopyOut());
    return status;
  }

  absl::Status Pack(std::span<const PackTask> given) override {
    std::vector<PackTask> tasks(given.begin(), given.end());
    Mirror mirror(device());
    for (const PackTask& t : tasks) {
      if (t.rows <= 0 || t.heads <= 0) continue;
      mirror.Name(t.from,
                  (t.rows - 1) * t.row_stride + (t.heads - 1) * t.head_stride + t.head_bytes);
      mirror.Name(t.to, t.rows * t.heads * t.head_bytes);
    }
    absl::Status status = mirror.CopyIn();
    for (PackTask& t : tasks) {
      mirror.Translate(t.from);
      mirror.Translate(t.to);
    }
    status.Update(device().Pack(tasks));
    status.Update(mirror.CopyOut());
    return status;
  }

 private:
  bool OnDevice(const void* data) const {
    const std::lock_guard lock(mutex_);
    auto after = own_.upper_bound(reinterpret_cast<uintptr_t>(data));
    if (after == own_.begin()) return false;
    --after;
    return reinterpret_cast<uintptr_t>(data) < after->first + static_cast<uintptr_t>(after->second);
  }

  mutable std::mutex mutex_;
  std::map<uintptr_t, int64_t> own_;  // buffers that were handed out, freed ones too
};

}  // namespace

std::unique_ptr<Device> Mirrored(std::unique_ptr<Device> device) {
  if (device->host_memory()) return device;
  return std::make_unique<MirroredDevice>(std::move(device));
}

}  // namespace hilbert_ring
