// Unary calls whose bytes are no message of their request's type. gRPC answers them by itself, with
// INTERNAL and without a message, before a handler could.
#pragma once

#include <memory>

#include "grpcpp/support/server_interceptor.h"

namespace hilbert_ring::server {

// Answers those of all services of a server, but for gRPC's own, with INVALID_ARGUMENT
// (INVALID_OPEN).
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NameMalformedRequests();

}  // namespace hilbert_ring::server
