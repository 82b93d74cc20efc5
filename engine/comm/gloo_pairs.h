// Connections of Gloo that outlive errors. Gloo's own end the process where a connection breaks
// while it is made, or where a peer sends what nobody waits for. These end themselves, and whoever
// waits for one of them gets the error at once, whatever has been transferred.
#pragma once

#include <memory>

#include "gloo/transport/context.h"
#include "gloo/transport/device.h"

namespace hilbert_ring {

struct GlooRanks {
  int rank = 0;
  int size = 0;
};

// device: of TCP.
std::shared_ptr<gloo::transport::Context> MakeGlooContext(
    const std::shared_ptr<gloo::transport::Device>& device, const GlooRanks& ranks);

}  // namespace hilbert_ring
