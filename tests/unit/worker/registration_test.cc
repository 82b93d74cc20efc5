#include "server/worker/registration.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "server/process/deadline.h"
#include "tests/support/captured_log.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLong{30};

const Registration::Hooks kNoHooks{.heartbeat = [] { return v1::Heartbeat(); },
                                   .registered = [](bool) {},
                                   .reply = [](const v1::HeartbeatReply&) {}};

// Takes a worker, or refuses it, and notes its beats.
class FakeCoordinator : public v1::MembershipService::Service {
 public:
  explicit FakeCoordinator(int refusals) : refusals_(refusals) {}

  grpc::Status Register(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>* stream) override {
    v1::Heartbeat beat;
    if (Note({}, refusals_)) {
      return {grpc::StatusCode::UNAUTHENTICATED, "the join token is another one"};
    }
    while (stream->Read(&beat)) {
      Note(beat);
      v1::HeartbeatReply reply;
      reply.set_interval_ms(milliseconds(kLong).count());
      reply.set_up(true);
      if (!stream->Write(reply)) break;
    }
    return grpc::Status::OK;
  }

  struct Beat {
    v1::Heartbeat heartbeat;
    Clock::time_point came;
  };
  std::vector<Beat> Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLong, [&] { return beats_.size() >= count; });
    return beats_;
  }

 private:
  bool Note(const v1::Heartbeat& beat, int most = std::numeric_limits<int>::max()) {
    const std::lock_guard lock(mutex_);
    if (std::ssize(beats_) >= most) return false;
    beats_.push_back({beat, Clock::now()});
    changed_.notify_all();
    return true;
  }

  const int refusals_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Beat> beats_;
};

class RegistrationTest : public ::testing::Test {
 protected:
  void Start(int refusals) {
    coordinator_.emplace(refusals);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&*coordinator_);
    server_ = builder.BuildAndStart();
    registration_.emplace(absl::StrCat("127.0.0.1:", port_), "", secret_,
                          Registration::Hooks{.heartbeat =
                                                  [this] {
                                                    v1::Heartbeat beat;
                                                    beat.set_memory_used_bytes(++beats_);
                                                    return beat;
                                                  },
                                              .registered = [](bool) {},
                                              .reply = [](const v1::HeartbeatReply&) {}});
  }
  void TearDown() override {
    registration_.reset();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  int port_ = 0;
  int beats_ = 0;  // used by the registration's thread
  CoordinatorSecret secret_;
  std::optional<FakeCoordinator> coordinator_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<Registration> registration_;
};

// Returns the time of `attempts` connections to a silent coordinator.
Clock::duration TimeOfAttempts(int attempts) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  CoordinatorSecret secret;
  const Clock::time_point start = Clock::now();
  const Registration registration(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), "", secret,
                                  kNoHooks);
  pollfd ready{.fd = listener, .events = POLLIN};
  for (int i = 0; i < attempts; ++i) {
    EXPECT_EQ(poll(&ready, 1, milliseconds(kLong).count()), 1);
    close(accept(listener, nullptr, nullptr));
  }
  close(listener);
  return Clock::now() - start;
}

// Pauses of up to 2 s between attempts would take 13 s.
TEST(Registration, ACoordinatorThatIsNotThereYetIsLookedForOften) {
  EXPECT_LT(TimeOfAttempts(12), seconds(8));
}

TEST_F(RegistrationTest, ACoordinatorThatRefusesItIsTriedLessOften) {
  Start(5);
  const auto beats = coordinator_->Await(6);
  ASSERT_EQ(beats.size(), 6u);
  EXPECT_GE(beats[5].came - beats[4].came, milliseconds(800));
}

TEST_F(RegistrationTest, NewsDoesNotWaitForTheNextBeat) {
  Start(0);
  ASSERT_EQ(coordinator_->Await(1).size(), 1u);
  registration_->BeatNow();
  const auto beats = coordinator_->Await(2);
  ASSERT_EQ(beats.size(), 2u);
  EXPECT_EQ(beats[1].heartbeat.memory_used_bytes(), 2);
  EXPECT_LT(beats[1].came - beats[0].came, kLong);
}

TEST_F(RegistrationTest, ARefusalIsLoggedWithTheCoordinatorsText) {
  const testing::CapturedLog log;
  Start(100);
  ASSERT_GE(coordinator_->Await(4).size(), 4u);
  registration_.reset();
  EXPECT_THAT(log.text(), ::testing::HasSubstr("the join token is another one"));
  EXPECT_THAT(log.text(), ::testing::Not(::testing::HasSubstr("CANCELLED")));
}

}  // namespace
}  // namespace hilbert_ring::server
