// A GPU as a device.
//
// It has four streams: tasks, rows in, rows out, and making and freeing of buffers. Rows pass
// through pinned memory in pieces: the host copies one while the GPU fetches the piece before.
// Tasks wait for rows that were copied in before them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// Errors are MakeDevice's. A build without CUDA has no such device.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const DeviceOptions& options);

}  // namespace hilbert_ring
