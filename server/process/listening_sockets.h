// The sockets with which a server listens.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// "127.0.0.1", or "::1" on a machine that has this one alone.
std::string LoopbackHost();

// All addresses of one host, at one port. A wildcard host ("0.0.0.0", "::") is all addresses of
// the machine, IPv6 and IPv4, where it has both.
class ListeningSockets {
 public:
  // Port 0: a free one. UNAVAILABLE, naming `what` ("grpc"), host and port, when none of the
  // addresses can be listened on: another process has the port, the host is no address of this
  // machine, or the user may not.
  static absl::StatusOr<ListeningSockets> Open(const std::string& what, const std::string& host,
                                               int port);
  ListeningSockets(ListeningSockets&& other) noexcept = default;
  ListeningSockets& operator=(ListeningSockets&&) = delete;
  ~ListeningSockets();

  int port() const { return port_; }
  const std::vector<int>& descriptors() const { return descriptors_; }  // they do not block

 private:
  ListeningSockets() = default;

  std::vector<int> descriptors_;
  int port_ = 0;
};

}  // namespace hilbert_ring::server
