// Who counts as one caller where limits are by address.
#pragma once

#include <string>

namespace hilbert_ring::server {

// What a peer is. An IPv6 caller commonly has 64 bits of addresses to itself; workers have one
// each, and all of a cluster may lie in one such network.
enum class PeerIs { kNetwork, kAddress };

// host: an address as text, with or without a scope. As a network an IPv6 address is
// "2001:db8:1:2::/64", or, of a link, "fe80::/64%eth0": another link has other hosts. An IPv4
// address that is written as an IPv6 one ("::ffff:10.0.0.7") is the IPv4 one; all others stay as
// they are.
std::string PeerName(const std::string& host, PeerIs peer);

// The address (host_port.h) of what gRPC calls a peer: "ipv4:10.0.0.7:8101" is "10.0.0.7:8101",
// "ipv6:%5Bfd00::7%5D:8101" is "[fd00::7]:8101". Empty where it has none.
std::string AddressOfPeer(const std::string& peer);

}  // namespace hilbert_ring::server
