#include "server/worker/ring_transport.h"

#include <utility>

#include "engine/base/return_if_error.h"
#include "engine/comm/checked.h"

namespace hilbert_ring::server {

RingTransport MakeRingTransport(const RingTransportOptions& options) {
  using Joined = absl::StatusOr<std::unique_ptr<Communicator>>;
  if (options.cuda_device) {
    return {.name = "nccl",
            .join = [device = *options.cuda_device, max_ctas = options.max_ctas](
                        const RingRequest& request, const AllGather& all_gather) -> Joined {
              return MakeNcclCommunicator({.rank = request.rank,
                                           .size = request.size,
                                           .cuda_device = device,
                                           .ring = request.ring,
                                           .deadline = request.deadline,
                                           .max_ctas = max_ctas,
                                           .cancelled = request.cancelled},
                                          all_gather);
            }};
  }
  return {.name = "gloo",
          .join = [host = options.host](const RingRequest& request,
                                        const AllGather& all_gather) -> Joined {
            ASSIGN_OR_RETURN(auto made, MakeGlooCommunicator({.rank = request.rank,
                                                              .size = request.size,
                                                              .host = host,
                                                              .ring = request.ring,
                                                              .deadline = request.deadline},
                                                             all_gather));
            return MakeChecked(std::move(made));
          }};
}

}  // namespace hilbert_ring::server
