#include "client/cpp/connector.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/service.h"
#include "gtest/gtest.h"
#include "tests/support/free_port.h"
#include "tests/unit/client/fake_service.h"

namespace hilbert_ring::client {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

// Accepts connections and sends no bytes, like a stopped process.
class SilentListener {
 public:
  SilentListener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    const bool bound = bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                       listen(fd_, 64) == 0 &&
                       getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    port_ = bound ? ntohs(address.sin_port) : 0;
  }
  ~SilentListener() { close(fd_); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const int fd_;
  int port_ = 0;
};

class ConnectorTest : public ::testing::TestWithParam<bool> {
 protected:
  static Connector To(const std::string& server) {
    if (GetParam()) return Connector([server] { return Connect(server); });
    return Connector(Connect(server));
  }
};

TEST_P(ConnectorTest, AServiceThatComesIsConnectedTo) {
  const int port = FreePort();
  Connector connector = To(absl::StrCat("127.0.0.1:", port));
  EXPECT_FALSE(connector.Await(absl::Milliseconds(100), nullptr));
  EXPECT_FALSE(connector.connected());
  std::optional<FakeService> service;
  std::jthread start([&] {
    absl::SleepFor(absl::Milliseconds(200));
    service.emplace(FakeBehaviour(), port);
  });
  ASSERT_TRUE(connector.Await(kLong, nullptr));
  start.join();
  EXPECT_TRUE(connector.connected());
  EXPECT_TRUE(RequestJobs(connector.channel()).ok());
}

TEST_P(ConnectorTest, WaitsEndWithTheDeadlineAndWithCancellation) {
  Connector connector = To(absl::StrCat("127.0.0.1:", FreePort()));
  int asked = 0;
  EXPECT_FALSE(connector.Await(absl::InfiniteDuration(), [&asked] { return ++asked == 4; }));
  EXPECT_EQ(asked, 4);
  EXPECT_FALSE(connector.Await(absl::ZeroDuration(), nullptr));
}

INSTANTIATE_TEST_SUITE_P(Channels, ConnectorTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Fresh" : "One"; });

TEST(Connector, AHostThatDoesNotAnswerIsTriedAnewWhileItsConnectionWaits) {
  const SilentListener silent;
  const FakeService service;
  // The first channel waits for the silent listener; the second finds the service.
  int channels = 0;
  Connector connector([&] {
    ++channels;
    return Connect(channels < 3 ? silent.address() : service.address());
  });
  ASSERT_TRUE(connector.Await(kLong, nullptr));
  EXPECT_EQ(channels, 3);
  EXPECT_TRUE(RequestJobs(connector.channel()).ok());
}

}  // namespace
}  // namespace hilbert_ring::client
