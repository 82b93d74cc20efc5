// The CPU as a device: one persistent pool of threads, kernels chosen for the machine at run time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// INVALID_ARGUMENT for threads below 0 or above 1024.
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(const DeviceOptions& options);

}  // namespace hilbert_ring
