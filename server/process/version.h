// Of the product; coordinator and workers must have the same.
#pragma once

#include <string_view>

namespace hilbert_ring::server {

inline constexpr std::string_view kVersion = HILBERT_RING_VERSION;

}  // namespace hilbert_ring::server
