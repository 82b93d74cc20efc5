#include "engine/device/cpu/cpu_device.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/device.h"

namespace hilbert_ring {

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options) {
  return options.kind == DeviceKind::kCpu ? MakeCpuDevice(options) : MakeCudaDevice(options);
}

}  // namespace hilbert_ring
