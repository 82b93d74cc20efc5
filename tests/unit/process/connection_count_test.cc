#include "server/process/connection_count.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/process/loopback_sockets.h"

namespace hilbert_ring::server {
namespace {

TEST(ConnectionCount, CountsThoseThatCameInByAPort) {
  const Socket listening = Listen();
  const int port = PortOf(listening);
  EXPECT_FALSE(ConnectionsByPort().contains(port)) << "a socket that listens is no connection";

  std::vector<Socket> clients;
  clients.reserve(3);
  for (int i = 0; i < 3; ++i) clients.push_back(Connect(port));
  {
    // Their own ends are in this process, too, at other ports; the third is not taken yet.
    const Socket first = Accept(listening), second = Accept(listening);
    EXPECT_EQ(ConnectionsByPort()[port], 2);
  }
  EXPECT_FALSE(ConnectionsByPort().contains(port)) << "after they were closed";
}

}  // namespace
}  // namespace hilbert_ring::server
