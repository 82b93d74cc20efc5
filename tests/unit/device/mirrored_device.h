// Lets tests give tasks over host memory to a device that cannot reach it.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace hilbert_ring {

// The device itself where its memory is the host's. Else one that copies what a task names to the
// device before it and back after it, gaps included; addresses in the device's own buffers stay as
// they are.
std::unique_ptr<Device> Mirrored(std::unique_ptr<Device> device);

}  // namespace hilbert_ring
