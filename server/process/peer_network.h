// Identifies peers for limits by address.
#pragma once

#include <string>

namespace hilbert_ring::server {

// An IPv6 caller commonly has a network; the workers of a cluster may share one.
enum class PeerIs { kNetwork, kAddress };

// host: an address as text. An IPv6 network is "2001:db8:1:2::/64", on a link "fe80::/64%eth0". A
// mapped IPv4 address ("::ffff:10.0.0.7") becomes the IPv4 address; other hosts stay as they are.
std::string PeerName(const std::string& host, PeerIs peer);

// The host of gRPC's peer: "ipv4:10.0.0.7:41234" is "10.0.0.7".
std::string PeerHost(const std::string& peer, PeerIs is = PeerIs::kNetwork);

// The address of gRPC's peer: "ipv4:10.0.0.7:8101" is "10.0.0.7:8101", "ipv6:%5Bfd00::7%5D:8101" is
// "[fd00::7]:8101". Empty for other kinds.
std::string AddressOfPeer(const std::string& peer);

}  // namespace hilbert_ring::server
