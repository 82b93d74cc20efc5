// Memory directly from the system: zero pages that become resident when they are written.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// Large buffers have huge pages if the system grants them (madvise). RESOURCE_EXHAUSTED without
// memory. Thread-safe.
absl::StatusOr<std::unique_ptr<Buffer>> MapMemory(int64_t bytes);

}  // namespace hilbert_ring
