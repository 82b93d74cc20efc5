// gRPC serves reflection by a thread for each stream, however long it says nothing. What is meant
// to be asked and answered at once has 5 s, and a host has few such streams: the oldest gives way.
//
//   builder.experimental().SetInterceptorCreators(LimitReflection());
#pragma once

#include <memory>
#include <vector>

#include "grpcpp/support/server_interceptor.h"

namespace hilbert_ring::server {

// Streams of reflection that a host has at once.
inline constexpr int kReflectionsOfPeer = 16;

// Calls of other methods are not touched.
std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
LimitReflection();

}  // namespace hilbert_ring::server
