// The NCCL communicator over an NCCL that hangs and fails.
#include "engine/comm/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/comm/nccl_session.h"
#include "tests/conformance/communicator_rings.h"
#include "tests/conformance/fake_nccl.h"

namespace hilbert_ring {
namespace {

using std::chrono::milliseconds;
using testing::After;
using testing::CommunicatorRing;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeNccl;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ThreadRendezvous;

constexpr milliseconds kLong = std::chrono::seconds(20);
constexpr milliseconds kPrompt = std::chrono::seconds(1);  // on a busy machine

using Made = absl::StatusOr<std::unique_ptr<Communicator>>;

milliseconds Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
}

class NcclCommunicatorTest : public ::testing::Test {
 protected:
  ~NcclCommunicatorTest() override { EXPECT_FALSE(nccl_.overlapped()); }

  static NcclOptions Options(int rank) {
    return {.rank = rank, .size = 2, .ring = "a", .deadline = After(kLong), .max_ctas = 4};
  }

  std::vector<Made> Join(const std::vector<NcclOptions>& options) {
    ThreadRendezvous rendezvous(2);
    std::vector<Made> made(2);
    std::thread other(
        [&] { made[1] = JoinNcclRing(options[1], rendezvous.ForRank(1), nccl_.MakeEnd(1)); });
    made[0] = JoinNcclRing(options[0], rendezvous.ForRank(0), nccl_.MakeEnd(0));
    other.join();
    return made;
  }

  CommunicatorRing Ring() {
    CommunicatorRing ring;
    for (Made& made : Join({Options(0), Options(1)})) {
      EXPECT_TRUE(made.ok()) << made.status();
      ring.push_back(*std::move(made));
    }
    return ring;
  }

  // Rank 0's half of an exchange with rank 1.
  CommStep StepTo1(int64_t number) {
    return {.number = number,
            .sends = {{.peer = 1, .data = sent_.data(), .bytes = kBytes}},
            .receives = {{.peer = 1, .data = received_.data(), .bytes = kBytes}}};
  }

  static constexpr int64_t kBytes = 1000;
  FakeNccl nccl_{2};
  std::vector<char> sent_ = std::vector<char>(kBytes);
  std::vector<char> received_ = std::vector<char>(kBytes);
};

TEST_F(NcclCommunicatorTest, JoinsWithRank0sIdAndLeavesInOrder) {
  { const CommunicatorRing ring = Ring(); }
  EXPECT_THAT(nccl_.Calls(0), ElementsAre("id", "staging", "init 0/2 4", "finalize", "destroy"));
  EXPECT_THAT(nccl_.Calls(1), ElementsAre("staging", "init 1/2 4", "finalize", "destroy"));
  EXPECT_EQ(nccl_.ends_destroyed(), 2);
}

TEST_F(NcclCommunicatorTest, APeerThatNeverComesIsWaitedForToTheDeadline) {
  nccl_.peers_come = false;
  std::vector<NcclOptions> options = {Options(0), Options(1)};
  for (NcclOptions& one : options) one.deadline = After(milliseconds(200));
  const auto start = std::chrono::steady_clock::now();
  for (const Made& made : Join(options)) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(made.status())) << made.status();
  }
  EXPECT_LT(Since(start), milliseconds(200) + kPrompt);
  EXPECT_EQ(nccl_.Calls(0).back(), "abort");
  EXPECT_EQ(nccl_.ends_destroyed(), 2);
}

TEST_F(NcclCommunicatorTest, JoiningCanBeCancelled) {
  nccl_.peers_come = false;
  std::atomic<bool> cancelled = false;
  std::vector<NcclOptions> options = {Options(0), Options(1)};
  for (NcclOptions& one : options) one.cancelled = [&] { return cancelled.load(); };
  const auto start = std::chrono::steady_clock::now();
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(50));
    cancelled = true;
  });
  for (const Made& made : Join(options)) EXPECT_TRUE(absl::IsCancelled(made.status()));
  EXPECT_LT(Since(start), kPrompt);
  EXPECT_EQ(nccl_.Calls(1).back(), "abort");
  canceller.join();
}

TEST_F(NcclCommunicatorTest, RingsDoNotMix) {
  std::vector<NcclOptions> options = {Options(0), Options(1)};
  options[1].ring = "b";
  for (const Made& made : Join(options)) {
    EXPECT_TRUE(absl::IsFailedPrecondition(made.status())) << made.status();
  }
  EXPECT_THAT(nccl_.Calls(0), Not(Contains(HasSubstr("init"))));
}

TEST_F(NcclCommunicatorTest, OneGroupAStepBetweenItsNotes) {
  const CommunicatorRing ring = Ring();
  testing::RunRanks(ring, [&](int rank, Communicator& communicator) {
    std::vector<char> out(kBytes, 'a'), in(kBytes);
    for (int64_t t = 0; t < 2; ++t) {
      ASSERT_TRUE(communicator
                      .Post({.number = t,
                             .sends = {{.peer = 1 - rank, .data = out.data(), .bytes = kBytes}},
                             .receives = {{.peer = 1 - rank, .data = in.data(), .bytes = kBytes}}})
                      .ok());
      ASSERT_TRUE(communicator.Wait(After(kLong)).ok());
    }
    EXPECT_EQ(in, out);
  });
  EXPECT_THAT(nccl_.Calls(1), ElementsAre("staging", "init 1/2 4", "to device", "group", "to host",
                                          "to device", "group", "to host"));
  EXPECT_EQ(nccl_.Groups(1)[1].size(), 4u);
}

TEST_F(NcclCommunicatorTest, AnAsynchronousErrorBreaks) {
  const CommunicatorRing ring = Ring();
  ASSERT_TRUE(ring[0]->Post(StepTo1(5)).ok());
  nccl_.FailRank(0, absl::UnavailableError("remote error"));
  const absl::Status status = ring[0]->Wait(After(kLong));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(status.message(), "waited for rank 1 in step 5: remote error");
  EXPECT_EQ(nccl_.Calls(0).back(), "abort");
  EXPECT_EQ(ring[0]->Wait(After(kLong)), status);
  EXPECT_EQ(ring[0]->Post({.number = 6}), status);
}

TEST_F(NcclCommunicatorTest, AnAbortReachesNcclWithoutAWait) {
  const CommunicatorRing ring = Ring();
  ASSERT_TRUE(ring[0]->Post(StepTo1(5)).ok());
  ring[0]->Abort("the ring was closed");
  for (int i = 0; i < 1000 && nccl_.Calls(0).back() != "abort"; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(nccl_.Calls(0).back(), "abort");
  const absl::Status status = ring[0]->Wait(After(kLong));
  EXPECT_EQ(status, absl::AbortedError("the ring was closed (waited for rank 1 in step 5)"));
}

TEST_F(NcclCommunicatorTest, ABrokenOrBusyEndIsNeverDestroyedInOrder) {
  CommunicatorRing ring = Ring();
  ASSERT_TRUE(ring[0]->Post(StepTo1(1)).ok());
  ring[0].reset();
  ring[1]->Abort("closed");
  ring[1].reset();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(nccl_.Calls(rank), Contains("abort"));
    EXPECT_THAT(nccl_.Calls(rank), Not(Contains("destroy")));
  }
  EXPECT_EQ(nccl_.ends_destroyed(), 2);
}

TEST_F(NcclCommunicatorTest, PeersThatDoNotFinalizeAreNotWaitedForLong) {
  CommunicatorRing ring = Ring();
  nccl_.peers_finalize = false;
  const auto start = std::chrono::steady_clock::now();
  ring[0].reset();
  EXPECT_LT(Since(start), NcclSession::kOrderlyLimit + kPrompt);
  EXPECT_EQ(nccl_.Calls(0).back(), "abort");
  EXPECT_THAT(nccl_.Calls(0), Not(Contains("destroy")));
  ring[1]->Abort("test ends");
}

TEST_F(NcclCommunicatorTest, MemoryThatAHangingGpuHoldsIsAnInternalError) {
  CommunicatorRing ring = Ring();
  ASSERT_TRUE(ring[0]->Post(StepTo1(1)).ok());
  nccl_.stuck = true;
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = ring[0]->Wait(After(milliseconds(10)));
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("waited for rank 1 in step 1"));
  EXPECT_LT(Since(start), NcclSession::kCloseLimit + kPrompt);
  EXPECT_EQ(nccl_.ends_destroyed(), 0);
  nccl_.stuck = false;
  ring.clear();
  EXPECT_EQ(nccl_.ends_destroyed(), 2);
}

}  // namespace
}  // namespace hilbert_ring
