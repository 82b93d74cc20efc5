// Connections of Gloo whose peers may send anything. Gloo's own end the process where a peer sends
// what nobody waits for, turn without end over an operation that is none, and keep what a peer
// announces without a bound. These end themselves, and whoever waits for one of them gets the error
// at once, whatever has been transferred; no peer that sends holds up who ends a ring, or a
// deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/comm/communicator.h"
#include "gloo/transport/context.h"
#include "gloo/transport/device.h"

namespace hilbert_ring {

struct GlooRanks {
  int rank = 0;
  int size = 0;
  // Operations that a peer may have sent before this rank starts what they belong to: those of one
  // step. Gloo looks through all of them at each.
  int64_t most_ahead = 0;
  std::shared_ptr<const std::atomic<Deadline>> due;  // of the step that is waited for
};

// device: of TCP.
std::shared_ptr<gloo::transport::Context> MakeGlooContext(
    const std::shared_ptr<gloo::transport::Device>& device, const GlooRanks& ranks);

}  // namespace hilbert_ring
