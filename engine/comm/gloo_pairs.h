// Connections of Gloo that survive errors. Gloo's own pairs end the process if a connection breaks
// while it is made, or if a peer sends unexpected bytes. All waits of these fail at once.
#pragma once

#include <memory>

#include "gloo/transport/context.h"
#include "gloo/transport/device.h"

namespace hilbert_ring {

struct GlooRanks {
  int rank = 0;
  int size = 0;
};

std::shared_ptr<gloo::transport::Context> MakeGlooContext(
    const std::shared_ptr<gloo::transport::Device>& device, const GlooRanks& ranks);

}  // namespace hilbert_ring
