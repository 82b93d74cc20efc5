#include "server/process/connection_count.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "server/process/open_descriptors.h"

namespace hilbert_ring::server {
namespace {

// Of a connected TCP socket; 0 for what is none.
int PortOfConnection(int descriptor) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(descriptor, at, &length) != 0) return 0;
  length = sizeof(address);
  if (getsockname(descriptor, at, &length) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  if (address.ss_family != AF_INET6) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
}

}  // namespace

std::map<int, int> ConnectionsByPort() {
  std::map<int, int> connections;
  ForEachDescriptor([&connections](int descriptor) {
    if (const int port = PortOfConnection(descriptor); port != 0) ++connections[port];
  });
  return connections;
}

}  // namespace hilbert_ring::server
