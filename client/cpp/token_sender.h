// Sends the caller's token with each call of a channel.
#pragma once

#include <memory>
#include <vector>

#include "client/cpp/access.h"
#include "grpcpp/support/client_interceptor.h"

namespace hilbert_ring::client {

// Returns factories for grpc::experimental::CreateCustomChannelWithInterceptors; empty without a
// token.
std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> TokenSender(
    const Access& access);

}  // namespace hilbert_ring::client
