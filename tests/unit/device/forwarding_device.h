// A device that forwards every call to another; tests override calls.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "engine/device/device.h"

namespace hilbert_ring {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  DeviceInfo info() const override { return device_->info(); }
  bool host_memory() const override { return device_->host_memory(); }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return device_->Allocate(bytes);
  }
  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    return device_->CopyIn(to, from, bytes);
  }
  absl::Status CopyRowsIn(const RowsIn& rows) override { return device_->CopyRowsIn(rows); }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    return device_->CopyOut(to, from, bytes);
  }
  absl::StatusOr<std::unique_ptr<HostPin>> Pin(void* memory, int64_t bytes) override {
    return device_->Pin(memory, bytes);
  }
  absl::Status FillFloats(float* to, int64_t count, float value) override {
    return device_->FillFloats(to, count, value);
  }
  absl::Status FillSequence(int64_t* to, int64_t count, int64_t first) override {
    return device_->FillSequence(to, count, first);
  }
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    return device_->Attend(tasks, control);
  }
  absl::Status Merge(std::span<const MergeTask> tasks) override { return device_->Merge(tasks); }
  absl::Status Finalize(std::span<const FinalizeTask> tasks) override {
    return device_->Finalize(tasks);
  }
  absl::Status Pack(std::span<const PackTask> tasks) override { return device_->Pack(tasks); }
  absl::StatusOr<RowMath*> row_math() override { return device_->row_math(); }

 protected:
  Device& device() const { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace hilbert_ring
