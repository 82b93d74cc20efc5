// What an error of a job says of the device that it met.
#pragma once

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace hilbert_ring::server {

// Whether the device, or the process with it, is of no use any more: errors of a GPU's context
// outlast the call that met them, others do not. Asks the device where the error leaves it open.
bool IsBroken(Device& device, const absl::Status& error);

}  // namespace hilbert_ring::server
