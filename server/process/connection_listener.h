// Accepts the connections of a server, gRPC's or HTTP's. gRPC's own listener ends for good when
// accept fails once, as it does while the process has no descriptor left
// (https://github.com/grpc/grpc/issues/20418). libmicrohttpd's cannot leave its port to a server
// with another certificate: MHD_quiesce_daemon races with its epoll loop, which then aborts
// (0.9.75).
#pragma once

#include <functional>
#include <thread>

#include "server/process/listening_sockets.h"

namespace hilbert_ring::server {

class ConnectionListener {
 public:
  // Takes a connection over, without blocking. `listening`: the socket that it came in by.
  using Serve = std::function<void(int listening, int connection)>;

  // Calls `serve` in a thread of its own, until it is destroyed.
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
