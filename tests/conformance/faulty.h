// A communicator on a bad network: it corrupts, reorders or repeats what it sends. All ends agree
// on what travels where, so that any transport below takes it.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"

namespace hilbert_ring::testing {

enum class Fault {
  kCorrupt,  // one bit of each transfer
  kReorder,  // the first transfer and the next of its size to its peer change places
  kRepeat,   // the bytes of the step before, where sizes agree
};

std::unique_ptr<Communicator> MakeFaulty(std::unique_ptr<Communicator> inner, Fault fault);

}  // namespace hilbert_ring::testing
