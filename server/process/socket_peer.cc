#include "server/process/socket_peer.h"

#include <netdb.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"

namespace hilbert_ring::server {
namespace {

std::optional<SocketPeer> PeerOf(const sockaddr* address, socklen_t length, PeerIs is) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return std::nullopt;
  }
  SocketPeer peer{.host = PeerName(host, is)};
  if (!absl::SimpleAtoi(port, &peer.port)) return std::nullopt;
  return peer;
}

}  // namespace

std::optional<SocketPeer> PeerOfSocket(int descriptor, PeerIs is) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(descriptor, at, &length) != 0) return std::nullopt;
  return PeerOf(at, length, is);
}

std::optional<SocketPeer> PeerAtAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() || getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) {
    return std::nullopt;
  }
  std::optional<SocketPeer> peer = PeerOf(found->ai_addr, found->ai_addrlen, PeerIs::kAddress);
  freeaddrinfo(found);
  return peer;
}

}  // namespace hilbert_ring::server
