#include "server/process/peer_network.h"

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(PeerName, IsAnAddressOrItsIPv6Network) {
  struct Case {
    const char *host, *network, *address;
  };
  for (const auto& [host, network, address] :
       {Case{"2001:db8:1:2::7", "2001:db8:1:2::/64", "2001:db8:1:2::7"},
        {"2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64",
         "2001:db8:1:2:ffff:ffff:ffff:ffff"},
        {"fe80::1%eth0", "fe80::/64%eth0", "fe80::1%eth0"},
        {"::ffff:10.0.0.7", "10.0.0.7", "10.0.0.7"},
        {"10.0.0.7", "10.0.0.7", "10.0.0.7"},
        {"::1", "::1", "::1"},
        {"name", "name", "name"},
        {"", "", ""}}) {
    EXPECT_EQ(PeerName(host, PeerIs::kNetwork), network);
    EXPECT_EQ(PeerName(host, PeerIs::kAddress), address);
  }
}

TEST(PeerName, IsThatOfAPeerOfGrpc) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.7:8101"), "10.0.0.7:8101");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B2001:db8::7%5D:8101"), "[2001:db8::7]:8101");
  EXPECT_EQ(AddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:8101"), "[fe80::1%eth0]:8101");
  EXPECT_EQ(AddressOfPeer("unix:/run/socket"), "");
  EXPECT_EQ(AddressOfPeer(""), "");
}

}  // namespace
}  // namespace hilbert_ring::server
