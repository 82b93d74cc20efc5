#include "server/process/shut_connections.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/process/loopback_sockets.h"

namespace hilbert_ring::server {
namespace {

std::string AddressAt(int port) { return absl::StrCat("127.0.0.1:", port); }

// What the other end has sent, "end" where it has ended, "open" where neither.
std::string Heard(const Socket& socket) {
  char buffer[16];
  const ssize_t bytes = recv(socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (bytes > 0) return std::string(buffer, static_cast<size_t>(bytes));
  return bytes == 0 ? "end" : errno == EAGAIN ? "open" : "error";
}

TEST(ShutConnections, EndsThoseToThePeerAndNoOthers) {
  const Socket worker = Listen(), other = Listen();
  const Socket to_worker = Connect(PortOf(worker)), to_other = Connect(PortOf(other));
  const Socket at_worker = Accept(worker), at_other = Accept(other);

  EXPECT_EQ(ShutConnectionsTo(AddressAt(PortOf(worker))), 1);
  EXPECT_EQ(Heard(to_worker), "end");
  EXPECT_EQ(send(to_worker.get(), "x", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(Heard(at_worker), "end");

  EXPECT_EQ(Heard(to_other), "open");
  EXPECT_EQ(send(to_other.get(), "x", 1, MSG_NOSIGNAL), 1);
  char byte = 0;
  EXPECT_EQ(recv(at_other.get(), &byte, 1, 0), 1);
}

// A thread that waits for a peer that takes nothing goes on, which is what it is for.
TEST(ShutConnections, EndsAConnectionWhosePeerTakesNothing) {
  const Socket worker = Listen();
  const Socket to_worker = Connect(PortOf(worker));
  const std::vector<char> much(1 << 20);
  ASSERT_EQ(fcntl(to_worker.get(), F_SETFL, O_NONBLOCK), 0);
  while (send(to_worker.get(), much.data(), much.size(), MSG_NOSIGNAL) > 0) {
  }
  ASSERT_EQ(errno, EAGAIN) << "there is room for more";

  EXPECT_EQ(ShutConnectionsTo(AddressAt(PortOf(worker))), 1);
  EXPECT_EQ(send(to_worker.get(), much.data(), 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
}

// As clients connect by IPv6 sockets where they can.
TEST(ShutConnections, KnowsAPeerOfAnIPv6SocketByItsIPv4Address) {
  const Socket worker = Listen();
  const int descriptor = socket(AF_INET6, SOCK_STREAM, 0);
  if (descriptor < 0) GTEST_SKIP() << "no IPv6 here";
  const Socket to_worker(descriptor);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>(PortOf(worker)));
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr), 1);
  ASSERT_EQ(connect(to_worker.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
  EXPECT_EQ(ShutConnectionsTo(AddressAt(PortOf(worker))), 1);
  EXPECT_EQ(Heard(to_worker), "end");
}

TEST(ShutConnections, EndsNothingForWhatIsNoNumber) {
  const Socket worker = Listen();
  const Socket to_worker = Connect(PortOf(worker));
  const std::string port = absl::StrCat(":", PortOf(worker));
  for (const std::string& address : {std::string(), std::string("127.0.0.1"), port,
                                     "localhost" + port, std::string("127.0.0.1:port")}) {
    EXPECT_EQ(ShutConnectionsTo(address), 0) << address;
  }
  EXPECT_EQ(Heard(to_worker), "open");
}

}  // namespace
}  // namespace hilbert_ring::server
