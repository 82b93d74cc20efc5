// Who is at the other end of a socket, and of a gRPC call.
#pragma once

#include <optional>
#include <string>

#include "server/process/peer_network.h"

namespace hilbert_ring::server {

struct SocketPeer {
  std::string host;  // PeerName
  int port = 0;
  bool operator==(const SocketPeer&) const = default;
};

// nullopt when there is no peer (any more), or it has no port.
std::optional<SocketPeer> PeerOfSocket(int descriptor, PeerIs is);

// `peer` as gRPC names it: "ipv4:10.0.0.7:41234" or "ipv6:%5Bfe80::1%25eth0%5D:41234". nullopt of
// what is no such name.
std::optional<SocketPeer> PeerOfCall(const std::string& peer, PeerIs is);

}  // namespace hilbert_ring::server
