#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/device.h"

namespace hilbert_ring {

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options) {
  switch (options.kind) {
    case DeviceKind::kCpu:
      return MakeCpuDevice(options);
    case DeviceKind::kCuda:
      return MakeCudaDevice(options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("kind ", static_cast<int>(options.kind), " is not a device"));
}

}  // namespace hilbert_ring
