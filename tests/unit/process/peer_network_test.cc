#include "server/process/peer_network.h"

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(PeerNetwork, AddressesOfAnIPv6NetworkAreOnePeer) {
  EXPECT_EQ(PeerNetwork("2001:db8:1:2::7"), "2001:db8:1:2::/64");
  EXPECT_EQ(PeerNetwork("2001:db8:1:2:ffff:ffff:ffff:ffff"), "2001:db8:1:2::/64");
  EXPECT_EQ(PeerNetwork("2001:db8:1:3::7"), "2001:db8:1:3::/64");
  EXPECT_EQ(PeerNetwork("fe80::1%eth0"), "fe80::/64");
}

TEST(PeerNetwork, AnIPv4AddressIsAPeerHoweverItIsWritten) {
  EXPECT_EQ(PeerNetwork("10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(PeerNetwork("::ffff:10.0.0.7"), "10.0.0.7");
}

TEST(PeerNetwork, WhatIsNoNetworkStaysAsItIs) {
  for (const char* host : {"::1", "", "name", "127.0.0.1"}) EXPECT_EQ(PeerNetwork(host), host);
}

}  // namespace
}  // namespace hilbert_ring::server
