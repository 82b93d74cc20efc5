// Simulates a bad network above a communicator: it corrupts, reorders or repeats the bytes of
// sends. Peers and sizes stay, so every transport accepts the step.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"

namespace hilbert_ring::testing {

enum class Fault {
  kCorrupt,  // flips a bit of each transfer
  kReorder,  // swaps the step's first send with the next of its peer and size
  kRepeat,   // sends the previous step's bytes, if sizes agree
};

std::unique_ptr<Communicator> MakeFaulty(std::unique_ptr<Communicator> inner, Fault fault);

}  // namespace hilbert_ring::testing
