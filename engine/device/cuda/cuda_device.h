// A GPU as a device.
//
// Four streams: attention and the other tasks; rows on their way in; rows on their way out; and the
// making and freeing of buffers. Rows pass through pinned memory in pieces, so that the host copies
// one while the GPU fetches the piece before. Tasks wait for rows that were copied in before them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// Errors of MakeDevice. In a build without CUDA there is no device.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const DeviceOptions& options);

}  // namespace hilbert_ring
