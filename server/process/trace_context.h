// The caller's trace of W3C's Trace Context. It is logged with the job and passed to the workers
// unchanged, because the service sends no spans.
#pragma once

#include <string>
#include <string_view>

#include "grpcpp/server_context.h"

namespace hilbert_ring::server {

std::string TraceparentOf(const grpc::ServerContextBase& context);  // empty: missing or invalid

// Returns whether it begins as version 00:
// "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".
bool IsTraceparent(std::string_view text);

}  // namespace hilbert_ring::server
