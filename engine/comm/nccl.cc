#include <utility>

#include "engine/base/return_if_error.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/nccl_end.h"

namespace hilbert_ring {

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const NcclOptions& options,
                                                                   const AllGather& all_gather) {
  ASSIGN_OR_RETURN(auto end, MakeNcclEnd(options.cuda_device));
  return JoinNcclRing(options, all_gather, std::move(end));
}

}  // namespace hilbert_ring
