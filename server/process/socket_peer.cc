#include "server/process/socket_peer.h"

#include <netdb.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace hilbert_ring::server {

std::optional<SocketPeer> PeerOfSocket(int descriptor, PeerIs is) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(descriptor, at, &length) != 0) return std::nullopt;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(at, length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return std::nullopt;
  }
  SocketPeer peer{.host = PeerName(host, is)};
  if (!absl::SimpleAtoi(port, &peer.port)) return std::nullopt;
  return peer;
}

std::optional<SocketPeer> PeerOfCall(const std::string& peer, PeerIs is) {
  absl::string_view host = peer;
  const bool ipv6 = absl::ConsumePrefix(&host, "ipv6:");
  if (!ipv6 && !absl::ConsumePrefix(&host, "ipv4:")) return std::nullopt;
  SocketPeer found;
  const size_t colon = host.rfind(':');
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(host.substr(colon + 1), &found.port)) {
    return std::nullopt;
  }
  host = host.substr(0, colon);
  // gRPC writes brackets and the scope's sign as in a URI.
  if (ipv6 && absl::ConsumePrefix(&host, "%5B")) host = absl::StripSuffix(host, "%5D");
  found.host = PeerName(absl::StrReplaceAll(host, {{"%25", "%"}}), is);
  return found;
}

}  // namespace hilbert_ring::server
