// Who is at the other end of a connection.
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

// Who listens at an address (host_port.h) whose host is a number, "10.0.0.7:8101" or
// "[fd00::7]:8101". nullopt of a name, which might have to be asked for.
std::optional<SocketPeer> PeerAtAddress(const std::string& address);

}  // namespace hilbert_ring::server
