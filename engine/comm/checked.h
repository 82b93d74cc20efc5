// A communicator that knows whether what arrived is what was sent.
//
//   auto checked = MakeChecked(std::move(communicator));
//   checked->Post(step);       // every send is followed by its CRC32C, in the same step
//   checked->Wait(deadline);   // DATA_LOSS: "from rank 1 in step 3, receives[0]: ..."
//
// The checksum also covers sender, receiver, step and place in the list, so that rows of another
// step, or in another order, are no match either. For memory that the processor reads: checksums
// are made in Post and verified in Wait, by the calling thread.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"

namespace hilbert_ring {

// Takes the place of `inner`, whose name it keeps. All ranks of a ring are checked, or none.
std::unique_ptr<Communicator> MakeChecked(std::unique_ptr<Communicator> inner);

}  // namespace hilbert_ring
