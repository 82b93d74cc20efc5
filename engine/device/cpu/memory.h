// Memory straight from the system: zero pages that become resident when they are written.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// Large ones in huge pages where the system gives them when asked (madvise).
// RESOURCE_EXHAUSTED when the system refuses. Thread-safe.
absl::StatusOr<std::unique_ptr<Buffer>> MapMemory(int64_t bytes);

}  // namespace hilbert_ring
