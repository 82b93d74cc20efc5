// Interceptors of a gRPC server.
#pragma once

#include <memory>
#include <vector>

#include "grpcpp/support/server_interceptor.h"

namespace hilbert_ring::server {

using Interceptors =
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>;

inline constexpr int kReflectionsOfPeer = 16;

// Unary calls whose bytes are not a message of the request's type get INVALID_ARGUMENT
// (INVALID_OPEN), except at gRPC's own services. gRPC alone would answer INTERNAL and no message.
// reflection: limits its streams to 5 s and a few for each host, the newest, because gRPC keeps a
// thread for each stream.
Interceptors InterceptorsOf(bool reflection);

}  // namespace hilbert_ring::server
