// A server's listening sockets.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

std::string LoopbackHost();  // "127.0.0.1", or "::1" without IPv4

// Sockets of all addresses of a host. A wildcard ("0.0.0.0", "::") stands for all IPv4 and IPv6.
class ListeningSockets {
 public:
  // Port 0: a free one. what: in messages ("grpc"). UNAVAILABLE if another process has the port,
  // the host is not this machine's, or the user lacks the permission.
  static absl::StatusOr<ListeningSockets> Open(const std::string& what, const std::string& host,
                                               int port);
  ListeningSockets(ListeningSockets&& other) noexcept = default;
  ListeningSockets& operator=(ListeningSockets&&) = delete;
  ~ListeningSockets();

  int port() const { return port_; }
  const std::vector<int>& descriptors() const { return descriptors_; }  // non-blocking

 private:
  ListeningSockets() = default;

  std::vector<int> descriptors_;
  int port_ = 0;
};

}  // namespace hilbert_ring::server
