// Accepts the connections of a server, gRPC's or HTTP's. gRPC's own listener ends for good when
// accept fails once, for example without a free descriptor
// (https://github.com/grpc/grpc/issues/20418). libmicrohttpd (0.9.75) cannot pass its port to a
// server with another certificate: MHD_quiesce_daemon races with its epoll loop, which then aborts.
#pragma once

#include <functional>
#include <thread>

#include "server/process/listening_sockets.h"

namespace hilbert_ring::server {

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
