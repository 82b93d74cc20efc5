#include "server/process/peer_network.h"

#include <string>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(PeerAddress, IsThatOfAPeerOfGrpc) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.7:8101"), "10.0.0.7:8101");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B2001:db8::7%5D:8101"), "[2001:db8::7]:8101");
  EXPECT_EQ(AddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:8101"), "[fe80::1%eth0]:8101");
  EXPECT_EQ(AddressOfPeer("unix:/run/socket"), "");
  EXPECT_EQ(AddressOfPeer(""), "");
}

}  // namespace
}  // namespace hilbert_ring::server
