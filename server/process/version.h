// The product's version, which coordinator and workers must share.
#pragma once

#include <string_view>

namespace hilbert_ring::server {

inline constexpr std::string_view kVersion = HILBERT_RING_VERSION;

}  // namespace hilbert_ring::server
