// The devices of a worker, as its settings say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "server/process/settings.h"

namespace hilbert_ring::server {

struct WorkerDevices {
  std::unique_ptr<Device> main;
  // Of the same kind, with one thread each, for short jobs beside others: with the main one as many
  // as that has threads, one at least and 255 at most, and one where it is a GPU.
  std::vector<std::unique_ptr<Device>> express;
};

// "auto" takes a GPU, or the CPU where there is none and says why in the log. Errors of MakeDevice.
absl::StatusOr<WorkerDevices> MakeWorkerDevices(const WorkerSettings& settings);

// The ordinal of the worker's GPU; nothing where the processor computes.
std::optional<int> GpuOf(const WorkerSettings& settings, const Device& device);

// Whether it computes encoders: OK, or why the GPU does not. A device of a CPU does.
absl::Status CanEncode(Device& device);

// Whether the device, or the process with it, is of no use any more after this error of a job:
// errors of a GPU's context outlast the call that met them, others do not. Asks the device where
// the error leaves it open.
bool IsBroken(Device& device, const absl::Status& error);

// Memory for jobs: the setting, or else the GPU's limit or the worker's share of 80 % of the
// machine's memory. Where weights of models lie on the GPU, --model-memory of its limit is theirs.
// INVALID_ARGUMENT, naming the setting: nothing is left.
absl::StatusOr<int64_t> JobMemoryLimit(const WorkerSettings& settings, Device& device);

}  // namespace hilbert_ring::server
