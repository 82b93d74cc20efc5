// A communicator on a bad network: it corrupts, reorders or repeats its sends. All ends agree on
// peers and sizes, so any transport below accepts the step.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"

namespace hilbert_ring::testing {

enum class Fault {
  kCorrupt,  // one bit of each transfer
  kReorder,  // swaps the first transfer to a peer with the next of its size
  kRepeat,   // sends the bytes of the step before, if sizes agree
};

std::unique_ptr<Communicator> MakeFaulty(std::unique_ptr<Communicator> inner, Fault fault);

}  // namespace hilbert_ring::testing
