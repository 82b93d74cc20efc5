#include "server/process/peer_network.h"

#include <string>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

std::string PeerNetwork(const std::string& host) { return PeerName(host, PeerIs::kNetwork); }

TEST(PeerNetwork, AddressesOfAnIPv6NetworkAreOnePeer) {
  EXPECT_EQ(PeerNetwork("2001:db8:1:2::7"), "2001:db8:1:2::/64");
  EXPECT_EQ(PeerNetwork("2001:db8:1:2:ffff:ffff:ffff:ffff"), "2001:db8:1:2::/64");
  EXPECT_EQ(PeerNetwork("2001:db8:1:3::7"), "2001:db8:1:3::/64");
  EXPECT_EQ(PeerNetwork("fe80::1%eth0"), "fe80::/64%eth0");
  EXPECT_NE(PeerNetwork("fe80::1%eth0"), PeerNetwork("fe80::1%eth1")) << "another link";
}

TEST(PeerNetwork, AnIPv4AddressIsAPeerHoweverItIsWritten) {
  EXPECT_EQ(PeerNetwork("10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(PeerNetwork("::ffff:10.0.0.7"), "10.0.0.7");
}

TEST(PeerAddress, EachIsAPeer) {
  for (const char* host : {"2001:db8:1:2::7", "fe80::1%eth0", "10.0.0.7", "::1"}) {
    EXPECT_EQ(PeerName(host, PeerIs::kAddress), host);
  }
  EXPECT_EQ(PeerName("::ffff:10.0.0.7", PeerIs::kAddress), "10.0.0.7");
}

TEST(PeerAddress, IsThatOfAPeerOfGrpc) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.7:8101"), "10.0.0.7:8101");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B2001:db8::7%5D:8101"), "[2001:db8::7]:8101");
  EXPECT_EQ(AddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:8101"), "[fe80::1%eth0]:8101");
  EXPECT_EQ(AddressOfPeer("unix:/run/socket"), "");
  EXPECT_EQ(AddressOfPeer(""), "");
}

TEST(PeerNetwork, WhatIsNoNetworkStaysAsItIs) {
  for (const char* host : {"::1", "", "name", "127.0.0.1"}) EXPECT_EQ(PeerNetwork(host), host);
}

}  // namespace
}  // namespace hilbert_ring::server
