// Tests failures of every communicator: deadlines, ends that disagree, aborts, peers that vanish.
#include <chrono>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/communicator_conformance.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Most tests use ranks 0 and 1. Further ranks are idle.
class CommunicatorFailureTest : public CommunicatorTest {};
INSTANTIATE_TEST_SUITE_P(All, CommunicatorFailureTest,
                         ::testing::Combine(kKinds, ::testing::Values(2, AtDepth(3, 3, 7))),
                         ParamName);

TEST_P(CommunicatorFailureTest, DeadlinePasses) {
  const CommunicatorRing ring = Ring();
  StepOf step(0, 3);
  step.Send(1, 10);
  step.Receive(1, 100000);
  ASSERT_TRUE(ring[0]->Post(step.step()).ok());
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = ring[0]->Wait(After(milliseconds(200)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 1 in step 3"));
  EXPECT_GE(Since(start), milliseconds(200));
  EXPECT_LT(Since(start), milliseconds(200) + kPrompt);
  EXPECT_EQ(ring[0]->Wait(After(kLong)), status);
  EXPECT_EQ(ring[0]->Post({.number = 4}), status);
}

TEST_P(CommunicatorFailureTest, DisagreeingEndsNeverMatch) {
  const CommunicatorRing ring = Ring();
  StepOf sender(0, 0), receiver(1, 0);
  sender.Send(1, 2000);
  receiver.Receive(0, 1000);
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    const CommStep& step = rank == 0 ? sender.step() : receiver.step();
    const absl::Status status = PostAndWait(communicator, step, After(milliseconds(200)));
    if (rank == 0 && communicator.name() == "nccl" && status.ok()) return;  // NCCL drops the excess
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status) ||
                absl::IsDataLoss(status))
        << status;
  });
}

TEST_P(CommunicatorFailureTest, AbortEndsAWait) {
  const CommunicatorRing ring = Ring();
  StepOf step(0, 0);
  step.Send(1, 100000);
  step.Receive(1, 100000);
  ASSERT_TRUE(ring[0]->Post(step.step()).ok());
  std::chrono::steady_clock::time_point aborted;
  std::thread watcher([&] {
    std::this_thread::sleep_for(milliseconds(100));
    aborted = std::chrono::steady_clock::now();
    ring[0]->Abort("rank 1 is known to be dead");
  });
  const absl::Status status = ring[0]->Wait(After(kLong));
  const auto returned = std::chrono::steady_clock::now();
  watcher.join();
  EXPECT_LT(returned - aborted, kPrompt);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 1 is known to be dead"));
  EXPECT_THAT(status.message(), HasSubstr("waited for rank 1"));
  EXPECT_EQ(ring[0]->Wait(After(kLong)), status);
  EXPECT_EQ(ring[0]->Post({.number = 1}), status);
}

TEST_P(CommunicatorFailureTest, AbortRacesPostAndWait) {
  for (int delay = 0; delay < 8; delay += AtDepth(3, 1, 1)) {
    const CommunicatorRing ring = Ring();
    std::thread watcher([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * delay));
      for (const auto& communicator : ring) communicator->Abort("raced");
    });
    RunRanks(ring, [&](int rank, Communicator& communicator) {
      absl::Status status;
      for (int64_t t = 0; status.ok(); ++t) {
        StepOf step(rank, t);
        step.Send((rank + 1) % size(), 20000);
        step.Receive((rank + size() - 1) % size(), 20000);
        status = PostAndWait(communicator, step.step(), After(kLong));
        EXPECT_TRUE(!status.ok() || step.Arrived());
      }
      EXPECT_TRUE(absl::IsAborted(status) || absl::IsUnavailable(status)) << status;
    });
    watcher.join();
  }
}

TEST_P(CommunicatorFailureTest, PeersOfAnAbortedRankLearnOfIt) {
  const CommunicatorRing ring = Ring();
  ring[1]->Abort("gives up");
  StepOf step(0, 0);
  step.Receive(1, 1000);
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = PostAndWait(*ring[0], step.step(), After(kLong));
  EXPECT_LT(Since(start), kPrompt);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST_P(CommunicatorFailureTest, PeerVanishesBeforeItPosts) {
  CommunicatorRing ring = Ring();
  StepOf step(0, 0);
  step.Send(1, 100000);
  step.Receive(1, 100000);
  ASSERT_TRUE(ring[0]->Post(step.step()).ok());
  std::thread leaver([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ring[1].reset();
  });
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = ring[0]->Wait(After(kLong));
  EXPECT_LT(Since(start), kPrompt);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  EXPECT_EQ(ring[0]->Wait(After(kLong)), status);
  leaver.join();
}

TEST_P(CommunicatorFailureTest, PeerVanishesInMidStep) {
  // Rank 1 posts the whole step but leaves without waiting: some of its bytes may be in flight.
  CommunicatorRing ring = Ring();
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    StepOf step(rank, 0);
    const int64_t bytes = int64_t{1} << AtDepth(22, 23, 24);
    step.Send(1 - rank, bytes);
    step.Receive(1 - rank, bytes);
    step.Send(1 - rank, 50);
    step.Receive(1 - rank, 60);  // the peer sends 50 bytes
    if (rank == 1) {
      EXPECT_TRUE(communicator.Post(step.step()).ok());
      ring[1].reset();
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = PostAndWait(communicator, step.step(), After(kPrompt));
    EXPECT_LT(Since(start), 2 * kPrompt);
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                absl::IsDataLoss(status))
        << status;
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  });
}

TEST_P(CommunicatorFailureTest, AbortGivesPostedMemoryBack) {
  const CommunicatorRing ring = Ring();
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    StepOf step(rank, 0);
    step.Receive(1 - rank, 1000000);
    if (rank == 1) step.Send(0, 1000000);
    const absl::Status posted = communicator.Post(step.step());
    EXPECT_TRUE(posted.ok() || absl::IsUnavailable(posted)) << posted;  // the peer may be faster
    communicator.Abort("leaves early");
    EXPECT_TRUE(absl::IsAborted(communicator.Wait(After(kLong))));  // frees the step's memory
  });
}

}  // namespace
}  // namespace hilbert_ring::testing
