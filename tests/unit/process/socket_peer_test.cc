#include "server/process/socket_peer.h"

#include <sys/socket.h>

#include "gtest/gtest.h"
#include "tests/unit/process/loopback_sockets.h"

namespace hilbert_ring::server {
namespace {

using PeerIs::kAddress;

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

TEST(SocketPeer, AnAddressIsReadAsItsSocketsTellIt) {
  EXPECT_EQ(PeerAtAddress("10.0.0.7:8101"), (SocketPeer{.host = "10.0.0.7", .port = 8101}));
  EXPECT_EQ(PeerAtAddress("[2001:DB8:0::7]:80"), (SocketPeer{.host = "2001:db8::7", .port = 80}));
  EXPECT_EQ(PeerAtAddress("[::ffff:10.0.0.7]:80"), (SocketPeer{.host = "10.0.0.7", .port = 80}));
  for (const char* address : {"", ":", ":80", "10.0.0.7", "10.0.0.7:", "10.0.0.7:port",
                              "worker-0.workers:8101", "unix:/run/socket"}) {
    EXPECT_EQ(PeerAtAddress(address), std::nullopt) << address;
  }
}

}  // namespace
}  // namespace hilbert_ring::server
