// Unary calls whose bytes are not a message of the request's type get INVALID_ARGUMENT
// (INVALID_OPEN), except at gRPC's own services. gRPC alone would answer INTERNAL and no message.
#pragma once

#include <memory>

#include "grpcpp/support/server_interceptor.h"

namespace hilbert_ring::server {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NameMalformedRequests();

}  // namespace hilbert_ring::server
