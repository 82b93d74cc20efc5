// Connections of Gloo that survive errors. A pair of Gloo's own ends the process if its peer sends
// unexpected bytes. It also does if a connection breaks while it is made. An error of a pair made
// here fails all waits for the pair at once.
//
//   auto context = MakeGlooContext(device, {.rank = 0, .size = 4});
//   auto& pair = context->createPair(peer);
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
