// Unary calls whose bytes are not a message of the request's type. gRPC itself answers them, with
// INTERNAL and without a message.
#pragma once

#include <memory>

#include "grpcpp/support/server_interceptor.h"

namespace hilbert_ring::server {

// Answers them with INVALID_ARGUMENT (INVALID_OPEN), except calls of gRPC's own services.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NameMalformedRequests();

}  // namespace hilbert_ring::server
