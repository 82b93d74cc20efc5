// Channels that leave no connection behind. With gRPC 1.51 a channel may end while its connection
// is being made, for example after a call's deadline. The connection is then still made and stays
// open until the process ends, if channels do not share connections.
#pragma once

#include <memory>

#include "grpcpp/channel.h"

namespace hilbert_ring::client {

// Wraps a channel so that it ends only after its connection is made or refused. Its last owner
// waits up to 50 ms for that; a slower channel is kept and checked when another one ends.
std::shared_ptr<grpc::Channel> Settled(std::shared_ptr<grpc::Channel> channel);

}  // namespace hilbert_ring::client
