// The device of a worker, as its settings say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "server/process/settings.h"

namespace hilbert_ring::server {

// "auto" takes the first GPU, or the CPU where there is none and says why in the log. Errors of
// MakeDevice.
absl::StatusOr<std::unique_ptr<Device>> MakeWorkerDevice(const WorkerSettings& settings);

// A second one of the same kind for short jobs beside a long one, of one thread.
absl::StatusOr<std::unique_ptr<Device>> MakeExpressDevice(const WorkerSettings& settings,
                                                          const Device& device);

// The ordinal of the worker's GPU; nothing where the processor computes.
std::optional<int> GpuOf(const WorkerSettings& settings, const Device& device);

// Memory for jobs: the setting, or else the GPU's limit or the worker's share of 80 % of the
// machine's memory.
int64_t JobMemoryLimit(const WorkerSettings& settings, const Device& device);

}  // namespace hilbert_ring::server
