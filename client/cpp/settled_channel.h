// Channels that leave no connection behind. With gRPC 1.51 a connection that is being made when its
// channel goes, for example because a call's deadline passed first, is made all the same and stays
// open for as long as the process lives, where channels do not share connections.
#pragma once

#include <memory>

#include "grpcpp/channel.h"

namespace hilbert_ring::client {

// The channel, which goes once its connection is made or refused. Its last owner waits for that,
// for 50 ms at most; what takes longer is kept, and looked at again when another channel goes.
std::shared_ptr<grpc::Channel> Settled(std::shared_ptr<grpc::Channel> channel);

}  // namespace hilbert_ring::client
