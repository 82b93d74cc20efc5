// Builds without CUDA have no GPU.
#include "absl/strings/str_cat.h"
#include "engine/device/cuda/cuda_device.h"

namespace hilbert_ring {

absl::Status FindCudaDevice(int ordinal) {
  return absl::FailedPreconditionError(
      absl::StrCat("no CUDA device ", ordinal, ": this build has no CUDA"));
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const DeviceOptions& options) {
  return FindCudaDevice(options.ordinal);
}

}  // namespace hilbert_ring
