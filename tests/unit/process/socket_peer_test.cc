#include "server/process/socket_peer.h"

#include <sys/socket.h>

#include "gtest/gtest.h"
#include "tests/unit/process/loopback_sockets.h"

namespace hilbert_ring::server {
namespace {

using PeerIs::kAddress, PeerIs::kNetwork;

TEST(SocketPeer, ASocketsPeerIsItsOtherEnd) {
  const Socket listening = Listen();
  const Socket client = Connect(PortOf(listening));
  const Socket server = Accept(listening);
  EXPECT_EQ(PeerOfSocket(client.get(), kAddress),
            (SocketPeer{.host = "127.0.0.1", .port = PortOf(listening)}));
  EXPECT_EQ(PeerOfSocket(server.get(), kAddress),
            (SocketPeer{.host = "127.0.0.1", .port = PortOf(client)}));
  EXPECT_EQ(PeerOfSocket(listening.get(), kAddress), std::nullopt) << "it has none";
  EXPECT_EQ(PeerOfSocket(-1, kAddress), std::nullopt);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Socket first(pair[0]), second(pair[1]);
  EXPECT_EQ(PeerOfSocket(first.get(), kAddress), std::nullopt) << "it has no port";
}

TEST(SocketPeer, ACallsPeerIsReadFromItsName) {
  EXPECT_EQ(PeerOfCall("ipv4:10.0.0.7:41234", kAddress),
            (SocketPeer{.host = "10.0.0.7", .port = 41234}));
  EXPECT_EQ(PeerOfCall("ipv6:%5B2001:db8::7%5D:80", kAddress),
            (SocketPeer{.host = "2001:db8::7", .port = 80}));
  EXPECT_EQ(PeerOfCall("ipv6:%5Bfe80::1%25eth0%5D:80", kNetwork),
            (SocketPeer{.host = "fe80::/64%eth0", .port = 80}));
  for (const char* name : {"", "10.0.0.7:41234", "unix:/run/socket:1", "ipv4:", "ipv4:10.0.0.7:"}) {
    EXPECT_EQ(PeerOfCall(name, kAddress), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace hilbert_ring::server
