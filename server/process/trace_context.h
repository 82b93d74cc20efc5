// The caller's trace, as W3C's Trace Context names it: logged with the job, and passed on to the
// workers as it is, since no spans are sent anywhere from here.
#pragma once

#include <string>
#include <string_view>

#include "grpcpp/server_context.h"

namespace hilbert_ring::server {

// The call's traceparent; empty where it has none, or one that is none.
std::string TraceparentOf(const grpc::ServerContextBase& context);

// Whether it is version 00's form, which later versions begin with:
// 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.
bool IsTraceparent(std::string_view text);

}  // namespace hilbert_ring::server
