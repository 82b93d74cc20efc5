// A connection over the loopback interface of a caller that says nothing.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

namespace hilbert_ring {

class SilentConnection {
 public:
  explicit SilentConnection(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<in_port_t>(port));
    connected_ = socket_ >= 0 && connect(socket_, reinterpret_cast<const sockaddr*>(&address),
                                         sizeof(address)) == 0;
  }
  ~SilentConnection() {
    if (socket_ >= 0) close(socket_);
  }
  SilentConnection(const SilentConnection&) = delete;
  SilentConnection& operator=(const SilentConnection&) = delete;

  bool connected() const { return connected_; }

  // Whether the server says something before it closes the connection.
  bool IsServed() const { return Await(std::chrono::seconds(20)) && Take() == 1; }

  // Whether the server closes it within the time, without a word.
  bool Ends(std::chrono::milliseconds time) const { return Await(time) && Take() <= 0; }

 private:
  bool Await(std::chrono::milliseconds time) const {
    pollfd event{.fd = socket_, .events = POLLIN, .revents = 0};
    return poll(&event, 1, static_cast<int>(time.count())) == 1;
  }
  ssize_t Take() const {
    char byte = 0;
    return recv(socket_, &byte, 1, 0);
  }

  const int socket_;
  bool connected_ = false;
};

}  // namespace hilbert_ring
