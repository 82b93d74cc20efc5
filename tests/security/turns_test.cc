#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/service.h"
#include "grpcpp/create_channel_posix.h"
#include "gtest/gtest.h"
#include "tests/security/tls_fixture.h"
#include "tests/service/raw_call.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);
constexpr int kManyJobs = 8;

// Too long for a worker's express lane.
JobSpec LongJob() { return PlainSpec({.tokens = 200'000}); }

using Stub = std::unique_ptr<v1::AttentionService::Stub>;

bool AwaitQueued(RawCall& call) {
  v1::AttendResponse response;
  return call.Read(&response) && response.has_queued();
}

// A caller has a running job and many that wait; a new caller has the next turn, once.
void ExpectTurns(v1::AttentionService::Stub& of_many, v1::AttentionService::Stub& of_one) {
  RawCall runs(of_many, kLimit);
  ASSERT_TRUE(runs.Open(LongJob()) && runs.AwaitAdmitted());
  std::vector<std::unique_ptr<RawCall>> waiting;
  for (int i = 0; i < kManyJobs; ++i) {
    waiting.push_back(std::make_unique<RawCall>(of_many, kLimit));
    ASSERT_TRUE(waiting.back()->Open(LongJob()) && AwaitQueued(*waiting.back()));
  }
  RawCall last(of_one, kLimit);
  ASSERT_TRUE(last.Open(LongJob()) && AwaitQueued(last));
  runs.Cancel();
  EXPECT_TRUE(last.AwaitAdmitted()) << "it waits behind all jobs of the other caller";
  last.Cancel();
  EXPECT_TRUE(waiting.front()->AwaitAdmitted());
}

class Turns : public TlsFixture {
 protected:
  void Start(const std::vector<std::string>& arguments) {
    auto service =
        StartSecured({.arguments = arguments, .workers = 1, .place = WorkerPlace::kLocal});
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
  }
  Stub From(const char* host) const {
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, host, &address.sin_addr);
    EXPECT_EQ(bind(made, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << host;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    address.sin_port = htons(static_cast<uint16_t>(service_->grpc_port()));
    EXPECT_EQ(connect(made, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return v1::AttentionService::NewStub(grpc::CreateInsecureChannelFromFd(host, made));
  }

  std::unique_ptr<Cluster> service_;
};

TEST_F(Turns, AreTakenByTheTokensName) {
  std::ofstream(folder_ / "tokens")
      << R"({"name": "many", "role": "submit", "token": "token-of-many-0123456789"})"
      << "\n"
      << R"({"name": "one", "role": "submit", "token": "token-of-one-0123456789"})"
      << "\n";
  Start({"--auth-token-file=" + (folder_ / "tokens")});
  const auto with = [&](const std::string& token) {
    return v1::AttentionService::NewStub(client::Connect(service_->address(), {.token = token}));
  };
  ExpectTurns(*with("token-of-many-0123456789"), *with("token-of-one-0123456789"));
}

TEST_F(Turns, AreTakenByTheHostWithoutTokens) {
  Start({});
  ExpectTurns(*From("127.0.0.1"), *From("127.0.0.2"));
}

}  // namespace
}  // namespace hilbert_ring::testing
