#include "server/process/connection_count.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

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

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

Socket Connect(int port) {
  Socket client(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(port);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return client;
}

TEST(ConnectionCount, CountsThoseThatCameInByAPort) {
  const Socket listening(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listening.get(), at, length), 0);
  ASSERT_EQ(listen(listening.get(), 8), 0);
  ASSERT_EQ(getsockname(listening.get(), at, &length), 0);
  const int port = ntohs(address.sin_port);
  EXPECT_FALSE(ConnectionsByPort().contains(port)) << "a socket that listens is no connection";

  std::vector<Socket> clients;
  clients.reserve(3);
  for (int i = 0; i < 3; ++i) clients.push_back(Connect(port));
  {
    // Their own ends are in this process, too, at other ports; the third is not taken yet.
    const Socket first(accept(listening.get(), nullptr, nullptr));
    const Socket second(accept(listening.get(), nullptr, nullptr));
    EXPECT_EQ(ConnectionsByPort()[port], 2);
  }
  EXPECT_FALSE(ConnectionsByPort().contains(port)) << "after they were closed";
}

}  // namespace
}  // namespace hilbert_ring::server
