// A small attention of known input on the worker's device, before the worker registers. A worker
// that fails gets no jobs.
#pragma once

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace hilbert_ring::server {

// Compares rows in float32 and bfloat16 with engine/reference, within the tolerance of
// --check-rows. Errors of the device; INTERNAL for a wrong row.
absl::Status SelfTest(Device& device);

}  // namespace hilbert_ring::server
