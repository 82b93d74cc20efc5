// Attention by our own kernels: tasks are cut into launches (launch_plan.h), of which two are in
// flight, and the caller is asked between them whether to go on.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/attention.h"
#include "engine/device/cuda/handles.cuh"
#include "engine/device/cuda/launch_plan.h"
#include "engine/device/device.h"

namespace hilbert_ring::cuda {

class NativeAttention {
 public:
  // For the current device, `ordinal`. `device` is where scratch memory comes from, and outlives
  // this.
  static absl::StatusOr<std::unique_ptr<NativeAttention>> Make(const DeviceOptions& options,
                                                               const cudaDeviceProp& properties,
                                                               Device& device);
  ~NativeAttention();
  NativeAttention(const NativeAttention&) = delete;
  NativeAttention& operator=(const NativeAttention&) = delete;

  std::string name() const;  // "native", "native-sm90", "native-sm90-pipelined"

  // Puts launches on the stream. Adds to `scores` those that ended; what is on the stream when it
  // returns, as after an error, was not waited for.
  absl::Status Attend(std::span<const AttentionTask> tasks, const AttendControl& control,
                      cudaStream_t stream, int64_t& scores);

 private:
  // What one launch needs until it has ended.
  struct Slot {
    PinnedMemory pinned;  // the launch's notes, works, and tensor maps: one copy brings all
    void* device = nullptr;
    Event done;
  };

  explicit NativeAttention(Device& device) : device_(device) {}
  absl::Status PrepareSlots();
  absl::Status ReserveScratch(int64_t bytes);
  absl::Status Start(const PlannedLaunch& launch, const Slot& slot, cudaStream_t stream);
  cudaError_t PutLaunch(const PlannedLaunch& launch, const Slot& slot, cudaStream_t stream) const;
  // careful: whether any of the launch's tiles was computed by AttendCarefully.
  absl::Status Await(const Slot& slot, const AttendControl& control, int64_t& scores,
                     bool& careful);

  Device& device_;
  LaunchRates rates_;
  std::array<Slot, 2> slots_;
  void* careful_tiles_ = nullptr;    // device memory, of one launch after the other
  std::unique_ptr<Buffer> scratch_;  // of tasks with very many keys; made when first used
};

}  // namespace hilbert_ring::cuda
