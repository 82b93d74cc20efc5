// A small attention of known input on the worker's own device, before the worker registers. Each
// row of the outputs is compared with the engine's reference, within the tolerance of --check-rows.
// The coordinator gives no jobs to a worker that failed.
#pragma once

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace hilbert_ring::server {

// In float32 and in bfloat16. Errors of the device; INTERNAL, which names the row: it is wrong.
absl::Status SelfTest(Device& device);

}  // namespace hilbert_ring::server
