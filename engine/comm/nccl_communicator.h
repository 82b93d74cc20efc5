// A Communicator over an NcclEnd.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_end.h"

namespace hilbert_ring {

// Works as MakeNcclCommunicator, over an unused end.
absl::StatusOr<std::unique_ptr<Communicator>> JoinNcclRing(const NcclOptions& options,
                                                           const AllGather& all_gather,
                                                           std::unique_ptr<NcclEnd> end);

}  // namespace hilbert_ring
