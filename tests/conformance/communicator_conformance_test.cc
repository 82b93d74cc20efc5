// The duties of every communicator. communicator_failure_test.cc has its failures.
#include "tests/conformance/communicator_conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// 1 to 7 ranks; fast tests skip some.
std::vector<int> RanksAtDepth() {
  const std::vector<int> all = {1, 2, 3, 4, 5, 6, 7};
  return AtDepth<std::vector<int>>({1, 2, 3, 5}, all, all);
}

// Tests of two ranks; further ranks are idle.
class CommunicatorPeersTest : public CommunicatorTest {};

INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest,
                         ::testing::Combine(kKinds, ::testing::ValuesIn(RanksAtDepth())),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(All, CommunicatorPeersTest,
                         ::testing::Combine(kKinds, ::testing::Values(2, AtDepth(3, 3, 7))),
                         ParamName);

TEST_P(CommunicatorTest, KnowsItself) {
  const CommunicatorRing ring = Ring();
  ASSERT_EQ(ring.size(), static_cast<size_t>(size()));
  for (int rank = 0; rank < size(); ++rank) {
    EXPECT_EQ(ring[rank]->rank(), rank);
    EXPECT_EQ(ring[rank]->size(), size());
    EXPECT_EQ(ring[rank]->name(), TransportName(std::get<0>(GetParam())));
  }
}

TEST_P(CommunicatorTest, PassesAroundTheRing) { PassAround(Ring()); }

TEST_P(CommunicatorTest, ExchangesAllToAll) {
  RunRanks(Ring(), [&](int rank, Communicator& communicator) {
    for (int64_t t = 0; t < 3; ++t) {
      StepOf step(rank, t);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank) continue;
        step.Send(peer, SizeOf(rank + peer, t));
        step.Receive(peer, SizeOf(rank + peer, t));
      }
      Exchange(communicator, step);
    }
  });
}

TEST_P(CommunicatorTest, RanksSkipSteps) {
  // In step t rank t sends to rank 0; only the two take part.
  RunRanks(Ring(), [&](int rank, Communicator& communicator) {
    for (int t = 1; t < size(); ++t) {
      if (rank != 0 && rank != t) continue;
      StepOf step(rank, t);
      if (rank == 0) step.Receive(t, 1000 * t);
      if (rank == t) step.Send(0, 1000 * t);
      Exchange(communicator, step);
    }
  });
}

TEST_P(CommunicatorTest, WaitsForNothingAtOnce) {
  const CommunicatorRing ring = Ring();
  EXPECT_TRUE(ring[0]->Wait(After(kLong)).ok());
  EXPECT_TRUE(ring[0]->Post({.number = 7}).ok());
  EXPECT_TRUE(ring[0]->Wait(Deadline::max()).ok());
  EXPECT_TRUE(ring[0]->Wait(Deadline::min()).ok());
}

TEST_P(CommunicatorTest, OneStepAtATime) {
  const CommunicatorRing ring = Ring();
  EXPECT_TRUE(ring[0]->Post({.number = 5}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ring[0]->Post({.number = 6})));
  EXPECT_TRUE(ring[0]->Wait(After(kLong)).ok());
  PassAround(ring, 6);  // the refused step broke nothing
}

TEST_P(CommunicatorTest, AbortFailsLaterCalls) {
  const CommunicatorRing ring = Ring();
  ring[0]->Abort("no more of this");
  ring[0]->Abort("another reason");
  for (const absl::Status& status : {ring[0]->Post({.number = 0}), ring[0]->Wait(After(kLong))}) {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("no more of this"));
  }
}

TEST_P(CommunicatorPeersTest, MatchesTransfersInOrder) {
  RunRanks(Ring(), [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    for (int64_t t = 0; t < 3; ++t) {
      StepOf step(rank, t);
      // Only order distinguishes equal sizes; both directions at once.
      for (const int64_t bytes : {5000, 5000, 0, 1, 300000, 5000}) {
        step.Send(1 - rank, bytes);
        step.Receive(1 - rank, bytes);
      }
      Exchange(communicator, step);
    }
  });
}

TEST_P(CommunicatorPeersTest, ZeroBytesNeedNoMemory) {
  RunRanks(Ring(), [&](int rank, Communicator& communicator) {
    const CommStep step{.sends = {{.peer = (rank + 1) % size()}},
                        .receives = {{.peer = (rank + size() - 1) % size()}}};
    EXPECT_TRUE(PostAndWait(communicator, step, After(kLong)).ok());
  });
}

TEST_P(CommunicatorPeersTest, MovesLargeMessages) {
  const int64_t bytes = (int64_t{1} << AtDepth(22, 24, 26)) + 13;
  RunRanks(Ring(), [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    StepOf step(rank, 0);
    if (rank == 0) step.Send(1, bytes);
    if (rank == 1) step.Receive(0, bytes);
    Exchange(communicator, step);
  });
}

TEST_P(CommunicatorPeersTest, SenderMayLeaveAfterItsWait) {
  constexpr int64_t kBytes = int64_t{8} << 20;
  CommunicatorRing ring = Ring();
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    StepOf step(rank, 0);
    if (rank == 0) step.Send(1, kBytes);
    if (rank == 1) step.Receive(0, kBytes);
    ASSERT_TRUE(communicator.Post(step.step()).ok());
    if (rank == 1 && communicator.name() == "gloo") std::this_thread::sleep_for(milliseconds(100));
    const absl::Status status = communicator.Wait(After(kLong));
    EXPECT_TRUE(status.ok()) << status;
    if (rank == 0) ring[0].reset();
    EXPECT_TRUE(step.Arrived());
  });
}

}  // namespace
}  // namespace hilbert_ring::testing
