// The devices of a worker.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "server/process/settings.h"

namespace hilbert_ring::server {

struct WorkerDevices {
  std::unique_ptr<Device> main;
  // Devices of one thread for short jobs: as many as main has other threads, 1 to 255; 1 on a GPU.
  std::vector<std::unique_ptr<Device>> express;
};

// "auto" takes a GPU, or logs why not and takes the CPU. Errors of MakeDevice.
absl::StatusOr<WorkerDevices> MakeWorkerDevices(const WorkerSettings& settings);

absl::Status CanEncode(Device& device);  // OK, or why the GPU does not compute encoders

// Returns whether the device is unusable after this error of a job: errors of a GPU's context
// outlast the call, others do not. Asks the device if the error does not decide.
bool IsBroken(Device& device, const absl::Status& error);

// Ends this process, in which a GPU may still write to memory. A supervisor restarts it.
[[noreturn]] void EndAtOnce(const absl::Status& broken);

// Memory for jobs: the setting, the GPU's limit less --model-memory for weights on it, or the
// worker's share of 80 % of the machine's memory. INVALID_ARGUMENT if nothing is left.
absl::StatusOr<int64_t> JobMemoryLimit(const WorkerSettings& settings, Device& device);

// A small attention of known input, before the worker registers: a worker that fails gets no jobs.
// Compares rows in float32 and bfloat16 with engine/reference, within the tolerance of
// --check-rows. Errors of the device; INTERNAL for a wrong row.
absl::Status SelfTest(Device& device);

}  // namespace hilbert_ring::server
