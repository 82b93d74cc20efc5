// Attention by native kernels, in launches (launch_plan.h) of which two are in flight. The caller
// may cancel between them.
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
  // Serves the current device, options.ordinal. `device` gives scratch memory, and outlives this.
  static absl::StatusOr<std::unique_ptr<NativeAttention>> Make(const DeviceOptions& options,
                                                               const cudaDeviceProp& properties,
                                                               Device& device);
  ~NativeAttention();
  NativeAttention(const NativeAttention&) = delete;
  NativeAttention& operator=(const NativeAttention&) = delete;

  std::string name() const;  // "native", "native-sm90", "native-sm90-pipelined"

  // Puts launches on the stream, and adds ended ones to `scores`. An error leaves work on the
  // stream.
  absl::Status Attend(std::span<const AttentionTask> tasks, const AttendControl& control,
                      cudaStream_t stream, int64_t& scores);

 private:
  struct Slot {
    PinnedMemory pinned;  // the launch's notes, works and tensor maps in one copy
    void* device = nullptr;
    Event done;
  };

  explicit NativeAttention(Device& device) : device_(device) {}
  absl::Status PrepareSlots();
  absl::Status ReserveScratch(int64_t bytes);
  absl::Status Start(const PlannedLaunch& launch, const Slot& slot, cudaStream_t stream);
  cudaError_t PutLaunch(const PlannedLaunch& launch, const Slot& slot, cudaStream_t stream) const;
  // careful: AttendCarefully computed a tile of the launch.
  absl::Status Await(const Slot& slot, const AttendControl& control, int64_t& scores,
                     bool& careful);

  Device& device_;
  LaunchRates rates_;
  std::array<Slot, 2> slots_;
  void* careful_tiles_ = nullptr;    // device memory, which launches use one after the other
  std::unique_ptr<Buffer> scratch_;  // of tasks with very many keys; made at first use
};

}  // namespace hilbert_ring::cuda
