// TCP sockets of this process on the loopback address.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace hilbert_ring::server {

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) { EXPECT_GE(descriptor, 0); }
  Socket(Socket&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

inline sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// At a port of the system's choice.
inline Socket Listen() {
  Socket listening(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(0);
  EXPECT_EQ(bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listening.get(), 8), 0);
  return listening;
}

// The socket's own.
inline int PortOf(const Socket& of) {
  sockaddr_in address = {};
  socklen_t length = sizeof(address);
  EXPECT_EQ(getsockname(of.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

inline Socket Connect(int port) {
  Socket client(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(port);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return client;
}

inline Socket Accept(const Socket& listening) {
  return Socket(accept(listening.get(), nullptr, nullptr));
}

}  // namespace hilbert_ring::server
