#include "server/process/open_connections.h"

#include <set>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

// Descriptors are closed by whom the server is: the test.
class OpenConnectionsTest : public ::testing::Test {
 protected:
  OpenConnections Limited(int per_peer, int descriptors) {
    return OpenConnections({.per_peer = per_peer, .descriptors = descriptors},
                           [this](int descriptor, const OpenConnections::Connection&) {
                             ++looks_;
                             return !closed_.contains(descriptor);
                           });
  }
  absl::Status Admit(OpenConnections& open, int descriptor, const std::string& host) {
    return open.Admit(descriptor, {.host = host, .port = ++port_}, now_);
  }

  Clock::time_point now_ = Clock::time_point{} + std::chrono::hours(1);
  std::set<int> closed_;
  int port_ = 0;
  int looks_ = 0;
};

TEST_F(OpenConnectionsTest, AHostHasSoManyAndOthersAreAdmitted) {
  OpenConnections open = Limited(2, 100);
  EXPECT_TRUE(Admit(open, 10, "10.0.0.7").ok());
  EXPECT_TRUE(Admit(open, 11, "10.0.0.7").ok());
  const absl::Status refused = Admit(open, 12, "10.0.0.7");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "a connection of 10.0.0.7 is refused: its host has 2, which is the limit");
  EXPECT_TRUE(Admit(open, 12, "10.0.0.8").ok());
}

TEST_F(OpenConnectionsTest, EndedConnectionsMakeRoom) {
  OpenConnections open = Limited(2, 100);
  EXPECT_TRUE(Admit(open, 10, "10.0.0.7").ok());
  EXPECT_TRUE(Admit(open, 11, "10.0.0.7").ok());
  closed_ = {10};
  EXPECT_TRUE(Admit(open, 12, "10.0.0.7").ok());
  EXPECT_FALSE(Admit(open, 13, "10.0.0.7").ok()) << "only one has ended";
}

TEST_F(OpenConnectionsTest, ADescriptorThatIsUsedAgainIsAnEndedConnection) {
  OpenConnections open = Limited(1, 100);
  EXPECT_TRUE(Admit(open, 10, "10.0.0.7").ok());
  EXPECT_TRUE(Admit(open, 10, "10.0.0.8").ok());
  EXPECT_TRUE(Admit(open, 11, "10.0.0.7").ok());
  EXPECT_FALSE(Admit(open, 12, "10.0.0.8").ok());
  EXPECT_EQ(looks_, 1) << "the descriptor's number told it, without a look";
}

TEST_F(OpenConnectionsTest, APeerAtItsLimitDoesNotCauseALookEachTime) {
  OpenConnections open = Limited(3, 100);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Admit(open, 10 + i, "10.0.0.7").ok());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Admit(open, 20, "10.0.0.7").ok());
  EXPECT_EQ(looks_, 3);
  closed_ = {10};
  EXPECT_FALSE(Admit(open, 20, "10.0.0.7").ok());
  now_ += milliseconds(100);
  EXPECT_TRUE(Admit(open, 20, "10.0.0.7").ok());
}

TEST_F(OpenConnectionsTest, AHighDescriptorIsRefusedWhoeverComes) {
  OpenConnections open = Limited(50, 100);
  EXPECT_TRUE(Admit(open, 99, "10.0.0.7").ok());
  const absl::Status refused = Admit(open, 100, "10.0.0.8");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "a connection of 10.0.0.8 is refused: the process has 100 descriptors in use, its "
            "limit is 100");
}

}  // namespace
}  // namespace hilbert_ring::server
