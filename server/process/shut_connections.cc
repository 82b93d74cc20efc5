#include "server/process/shut_connections.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "server/process/open_descriptors.h"
#include "server/process/socket_peer.h"

namespace hilbert_ring::server {
namespace {

// The connection is looked at and ended by a descriptor of our own: gRPC's may be closed, and its
// number be another socket's, at any moment.
bool ShutIfTo(const SocketPeer& peer, int descriptor) {
  if (PeerOfSocket(descriptor, PeerIs::kAddress) != peer) return false;
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return false;
  const bool shut = PeerOfSocket(own, PeerIs::kAddress) == peer && shutdown(own, SHUT_RDWR) == 0;
  close(own);
  return shut;
}

}  // namespace

int ShutConnectionsTo(const std::string& address) {
  const std::optional<SocketPeer> to = PeerAtAddress(address);
  if (!to) return 0;
  int shut = 0;
  ForEachDescriptor([&](int descriptor) {
    if (ShutIfTo(*to, descriptor)) ++shut;
  });
  return shut;
}

}  // namespace hilbert_ring::server
