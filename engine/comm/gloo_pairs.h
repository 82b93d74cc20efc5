// Connections of Gloo whose peers may send anything. Gloo's own end the process where a peer sends
// what nobody waits for, turn without end over an operation that is none, and keep what a peer
// announces without a bound. These end themselves, and whoever waits for one of them gets the error
// at once, whatever has been transferred.
#pragma once

#include <memory>

#include "gloo/transport/context.h"
#include "gloo/transport/device.h"

namespace hilbert_ring {

// device: of TCP. The context is made as Device::createContext makes it.
std::shared_ptr<gloo::transport::Context> MakeGlooContext(
    const std::shared_ptr<gloo::transport::Device>& device, int rank, int size);

}  // namespace hilbert_ring
