// Accepts the connections of a server, gRPC's or HTTP's, in place of the libraries' own listeners:
// gRPC's takes connections without a limit, and never listens again once it had no descriptor for
// one; libmicrohttpd's knows no networks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/process/listening_sockets.h"
#include "server/process/peer_network.h"

namespace hilbert_ring::server {

class ConnectionListener {
 public:
  struct Limits {
    int connections_per_peer = 0;
    PeerIs peer = PeerIs::kNetwork;
  };
  struct Handlers {
    // Takes a connection over; it does not block. `listening`: the socket that it came in by.
    std::function<void(int listening, int connection)> serve;
    // A connection was closed at once; null: nobody is told.
    std::function<void(const absl::Status& why)> refused;
  };

  // Accepts connections until it is destroyed; both handlers are called by its own thread.
  // RESOURCE_EXHAUSTED when the system has no thread or descriptor for it.
  static absl::StatusOr<std::unique_ptr<ConnectionListener>> Start(ListeningSockets sockets,
                                                                   const Limits& limits,
                                                                   Handlers handlers);
  ~ConnectionListener();
  ConnectionListener(const ConnectionListener&) = delete;
  ConnectionListener& operator=(const ConnectionListener&) = delete;

 private:
  ConnectionListener(ListeningSockets sockets, int end, Handlers handlers);
  void Accept(const Limits& limits);
  // Whether the end comes within the time.
  bool EndsWithin(std::chrono::milliseconds time) const;

  const ListeningSockets sockets_;
  const Handlers handlers_;
  const int end_;  // an eventfd; readable from the end on
  std::thread thread_;
};

}  // namespace hilbert_ring::server
