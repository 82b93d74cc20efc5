// Who counts as one caller where limits are by address.
#pragma once

#include <string>

namespace hilbert_ring::server {

// host: an address as text, with or without a scope. An IPv6 caller commonly has 64 bits of
// addresses to itself: they are one network, "2001:db8:1:2::/64". An IPv4 address that is written
// as an IPv6 one ("::ffff:10.0.0.7") is the IPv4 one; all others stay as they are.
std::string PeerNetwork(const std::string& host);

}  // namespace hilbert_ring::server
