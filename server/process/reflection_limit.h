// Limits streams of reflection to 5 s and a few for each host, the newest, because gRPC keeps a
// thread for each stream.
#pragma once

#include <memory>
#include <vector>

#include "grpcpp/support/server_interceptor.h"

namespace hilbert_ring::server {

inline constexpr int kReflectionsOfPeer = 16;

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
LimitReflection();

}  // namespace hilbert_ring::server
