// Lets tests give tasks over host memory to a device that cannot reach it.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace hilbert_ring {

// Returns the device itself if its memory is the host's. Otherwise the result copies a task's
// memory to the device before it and back after it, gaps included. The device's own addresses stay.
std::unique_ptr<Device> Mirrored(std::unique_ptr<Device> device);

}  // namespace hilbert_ring
