// Forming a Gloo ring: its options, and failures before it is connected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring {
namespace {

using testing::After;
using ::testing::HasSubstr;
using testing::ThreadRendezvous;

constexpr auto kLimit = std::chrono::seconds(20);

GlooOptions Options(int rank, int size) {
  return {.rank = rank, .size = size, .host = "127.0.0.1", .ring = "a", .deadline = After(kLimit)};
}

// Returns the statuses of all ranks, each with its options.
std::vector<absl::Status> Form(const std::vector<GlooOptions>& options) {
  ThreadRendezvous rendezvous(static_cast<int>(options.size()));
  std::vector<absl::Status> statuses(options.size());
  testing::CommunicatorRing ring(options.size());  // no rank leaves while others connect
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] {
      auto made = MakeGlooCommunicator(options[i], rendezvous.ForRank(static_cast<int>(i)));
      statuses[i] = made.status();
      if (made.ok()) ring[i] = *std::move(made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

AllGather NeverCalled() {
  return [](const std::string&, Deadline) -> absl::StatusOr<std::vector<std::string>> {
    ADD_FAILURE() << "all_gather is called";
    return absl::InternalError("called");
  };
}

TEST(GlooTest, ARingOfOneMeetsNobody) {
  EXPECT_TRUE(MakeGlooCommunicator({.rank = 0, .size = 1}, NeverCalled()).ok());
}

TEST(GlooTest, RejectsHostsThatAreNotHere) {
  for (const char* host : {"", "no-such-host.invalid", "192.0.2.1"}) {
    GlooOptions options = Options(0, 2);
    options.host = host;
    const absl::Status status = MakeGlooCommunicator(options, NeverCalled()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("host is"));
  }
}

TEST(GlooTest, TakesNamesAndInterfaces) {
  for (const char* host : {"localhost", "lo"}) {
    std::vector<GlooOptions> options = {Options(0, 2), Options(1, 2)};
    for (GlooOptions& one : options) one.host = host;
    for (const absl::Status& status : Form(options)) EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(GlooTest, DifferentRingsDoNotConnect) {
  for (const char* other : {"ab", "b", ""}) {
    std::vector<GlooOptions> options = {Options(0, 2), Options(1, 2)};
    options[1].ring = other;
    for (const absl::Status& status : Form(options)) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr("is not of ring"));
    }
  }
}

TEST(GlooTest, PeerLeavesBetweenRendezvousAndConnecting) {
  // Rank 1's communicator fails by garbled blobs, which closes its listener.
  ThreadRendezvous rendezvous(2);
  std::vector<absl::Status> statuses(2);
  std::thread leaver([&] {
    GlooOptions options = Options(1, 2);
    statuses[1] = MakeGlooCommunicator(options, [&](std::string own, Deadline deadline) {
                    auto blobs = rendezvous.ForRank(1)(std::move(own), deadline);
                    if (blobs.ok()) blobs->pop_back();
                    return blobs;
                  }).status();
  });
  GlooOptions options = Options(0, 2);
  options.deadline = After(std::chrono::seconds(2));
  statuses[0] = MakeGlooCommunicator(options, [&](std::string own, Deadline deadline) {
                  auto blobs = rendezvous.ForRank(0)(std::move(own), deadline);
                  leaver.join();
                  return blobs;
                }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(statuses[1])) << statuses[1];
  EXPECT_TRUE(absl::IsUnavailable(statuses[0]) || absl::IsDeadlineExceeded(statuses[0]))
      << statuses[0];
  EXPECT_THAT(statuses[0].message(), HasSubstr("rank 1"));
  EXPECT_LT(std::chrono::steady_clock::now(), options.deadline + std::chrono::seconds(2));
}

}  // namespace
}  // namespace hilbert_ring
