#include "server/process/listening_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"
#include "server/process/grpc_endpoint.h"

namespace hilbert_ring::server {
namespace {

std::string Refusal(const std::string& host, int port) {
  const absl::Status status = ListeningSockets::Open("grpc", host, port).status();
  EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  return std::string(status.message());
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ListeningSockets, APortInUseIsReported) {
  const auto first = StartGrpc({.host = "127.0.0.1", .port = 0, .max_threads = 4}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const int port = first->port;
  const std::string in_use = "127.0.0.1:" + std::to_string(port) + ": another process listens";
  EXPECT_TRUE(Has(Refusal("127.0.0.1", port), "cannot listen on grpc " + in_use));
  EXPECT_TRUE(Has(Refusal("0.0.0.0", port), "another process listens"));
  const auto grpc = StartGrpc({.host = "127.0.0.1", .port = port, .max_threads = 4}, {});
  EXPECT_TRUE(Has(std::string(grpc.status().message()), "grpc " + in_use)) << grpc.status();
}

// Connections of an ended server stay at its port for a minute; the next server may listen there.
TEST(ListeningSockets, APortOfAServerThatHasJustEndedCanBeListenedOn) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int reuse = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  ASSERT_EQ(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)), 0);
  ASSERT_EQ(bind(listener, at, length), 0);
  ASSERT_EQ(getsockname(listener, at, &length), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(connect(client, at, length), 0);
  const int served = accept(listener, nullptr, nullptr);
  ASSERT_GE(served, 0);
  close(served);  // first, so that the connection stays at this end
  close(client);
  close(listener);
  EXPECT_EQ(Refusal("127.0.0.1", ntohs(address.sin_port)), "");
}

TEST(ListeningSockets, AHostThatIsNotThisMachineIsReported) {
  EXPECT_TRUE(Has(Refusal("192.0.2.1", 0), "is no address of this machine"));
  EXPECT_TRUE(Has(Refusal("300.0.0.1", 0), "the host is no address: "));
}

}  // namespace
}  // namespace hilbert_ring::server
