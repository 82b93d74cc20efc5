// A communicator that verifies the rows it receives.
//
//   auto checked = MakeChecked(std::move(communicator));
//   checked->Post(step);       // every send is followed by its CRC32C, in the same step
//   checked->Wait(deadline);   // DATA_LOSS: "from rank 1 in step 3, receives[0]: ..."
//
// The checksum covers sender, receiver, step and place in the list too. The calling thread makes
// checksums in Post and verifies them in Wait, in the processor's memory.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"

namespace hilbert_ring {

// Replaces `inner` and keeps its name. Either all ranks of a ring are checked or no rank is.
std::unique_ptr<Communicator> MakeChecked(std::unique_ptr<Communicator> inner);

}  // namespace hilbert_ring
