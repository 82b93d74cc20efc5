// A ring without a transport: its ranks are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/communicator.h"

namespace hilbert_ring {

// Returns `size` communicators of one ring, by rank. Their name is "in-process".
std::vector<std::unique_ptr<Communicator>> MakeInProcessRing(int size);

}  // namespace hilbert_ring
