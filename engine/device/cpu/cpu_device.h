// The CPU as a device: one persistent pool of threads, kernels chosen for the machine at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// Values of DeviceOptions.instructions on this machine, the best first.
std::vector<std::string> RunnableCpuInstructions();

// INVALID_ARGUMENT: threads below 0 or above 1024, or instructions that this machine does not run.
absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(const DeviceOptions& options);

}  // namespace hilbert_ring
