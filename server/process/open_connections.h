// How many connections each peer of a server has open, and whether it may have one more.
//
// The server's transport closes connections without a word. A connection is therefore known by its
// descriptor and its peer's address: when the same descriptor belongs to another peer, or to none,
// it has ended. Descriptors are the lowest free numbers, so a high one says how many are in use.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "server/process/deadline.h"
#include "server/process/socket_peer.h"

namespace hilbert_ring::server {

// For one thread.
class OpenConnections {
 public:
  struct Limits {
    int per_peer = 0;     // connections of one host
    int descriptors = 0;  // of the process, connections or not
  };
  using Connection = SocketPeer;
  // Whether the descriptor still belongs to the connection.
  using IsOpen = std::function<bool(int descriptor, const Connection& connection)>;

  OpenConnections(const Limits& limits, IsOpen is_open)
      : limits_(limits), is_open_(std::move(is_open)) {}

  // Counts the new connection. RESOURCE_EXHAUSTED when its host has too many, or the process too
  // many descriptors: then it is not counted, and the caller closes it.
  absl::Status Admit(int descriptor, Connection connection, Clock::time_point now);

 private:
  void Forget(int descriptor);
  void ForgetEnded(const std::string& host);

  const Limits limits_;
  const IsOpen is_open_;
  std::unordered_map<int, Connection> connections_;  // by descriptor; some may have ended
  std::unordered_map<std::string, int> of_host_;
  Clock::time_point next_look_{};  // looking at all of them takes system calls
};

}  // namespace hilbert_ring::server
