// A server's listening sockets, and the thread that accepts their connections.
#pragma once

#include <functional>
#include <string>
#include <thread>
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

// Accepts the connections of a server, gRPC's or HTTP's. gRPC's own listener ends for good when
// accept fails once, for example without a free descriptor
// (https://github.com/grpc/grpc/issues/20418). libmicrohttpd (0.9.75) cannot pass its port to a
// server with another certificate: MHD_quiesce_daemon races with its epoll loop, which then aborts.
class ConnectionListener {
 public:
  // Takes ownership of a connection, without blocking. listening: its listening socket.
  using Serve = std::function<void(int listening, int connection)>;

  ConnectionListener(ListeningSockets sockets, Serve serve);
  ~ConnectionListener();
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

 private:
  void Accept(const std::stop_token& stop);

  const ListeningSockets sockets_;
  const Serve serve_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
