// What every communicator must do, for every kind and ring size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/conformance/communicator_rings.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLong = std::chrono::seconds(60);
constexpr milliseconds kPrompt = std::chrono::seconds(1);  // 100 ms and a busy machine

using Bytes = std::vector<unsigned char>;

// What `from` sends to `to` in a step, as its transfer number `place` to it.
Bytes Message(int from, int to, int64_t step, int place, int64_t bytes) {
  Bytes message(bytes);
  uint32_t x = 1 + from + 16 * to + 256 * place + 4096 * static_cast<uint32_t>(step);
  for (unsigned char& byte : message) {
    x = x * 1664525 + 1013904223;
    byte = static_cast<unsigned char>(x >> 24);
  }
  return message;
}

// A step of one rank with the memory of its transfers.
class StepOf {
 public:
  StepOf(int rank, int64_t number) : rank_(rank) { step_.number = number; }

  void Send(int peer, int64_t bytes) {
    sent_.push_back(Message(rank_, peer, step_.number, PlaceOf(step_.sends, peer), bytes));
    step_.sends.push_back({.peer = peer, .data = sent_.back().data(), .bytes = bytes});
  }

  void Receive(int peer, int64_t bytes) {
    expected_.push_back(Message(peer, rank_, step_.number, PlaceOf(step_.receives, peer), bytes));
    received_.emplace_back(bytes);
    step_.receives.push_back({.peer = peer, .data = received_.back().data(), .bytes = bytes});
  }

  const CommStep& step() const { return step_; }
  bool Arrived() const { return received_ == expected_; }

 private:
  template <typename Transfers>
  static int PlaceOf(const Transfers& transfers, int peer) {
    int place = 0;
    for (const auto& transfer : transfers) place += transfer.peer == peer ? 1 : 0;
    return place;
  }

  const int rank_;
  CommStep step_;
  std::vector<Bytes> sent_, received_, expected_;
};

absl::Status PostAndWait(Communicator& communicator, const CommStep& step, Deadline deadline) {
  absl::Status posted = communicator.Post(step);
  return posted.ok() ? communicator.Wait(deadline) : posted;
}

// The step is done and what arrived is right.
void Exchange(Communicator& communicator, const StepOf& step, Deadline deadline = After(kLong)) {
  const absl::Status status = PostAndWait(communicator, step.step(), deadline);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(step.Arrived()) << "rank " << communicator.rank() << " step " << step.step().number;
}

milliseconds Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
}

using Param = std::tuple<RingKind, int>;

class CommunicatorTest : public ::testing::TestWithParam<Param> {
 protected:
  int size() const { return std::get<1>(GetParam()); }

  CommunicatorRing Ring() const {
    auto ring = MakeCommunicatorRing(std::get<0>(GetParam()), size());
    if (!ring.ok()) {
      ADD_FAILURE() << ring.status();
      std::abort();
    }
    return *std::move(ring);
  }

  // Every rank passes on and receives: step numbers rise with gaps, sizes differ by sender and
  // step.
  void PassAround(const CommunicatorRing& ring, int64_t first_step = 0) const {
    RunRanks(ring, [&](int rank, Communicator& communicator) {
      for (int64_t t = 0; t < 5; ++t) {
        StepOf step(rank, first_step + 3 * t);
        if (size() > 1) {
          const int before = (rank + size() - 1) % size();
          step.Send((rank + 1) % size(), SizeOf(rank, t));
          step.Receive(before, SizeOf(before, t));
        }
        Exchange(communicator, step, Deadline::max());
      }
    });
  }

  static int64_t SizeOf(int from, int64_t t) { return (from + t) % 3 * 40000 + (from + t) % 2; }
};

// Tests of two ranks and of any beside them, which do nothing.
class CommunicatorPeersTest : public CommunicatorTest {};

std::string ParamName(const ::testing::TestParamInfo<Param>& info) {
  return absl::StrCat(RingKindName(std::get<0>(info.param)), std::get<1>(info.param));
}

const auto kKinds =
    ::testing::Values(RingKind::kInProcess, RingKind::kGloo, RingKind::kCheckedInProcess,
                      RingKind::kCheckedGloo, RingKind::kFakeNccl);
INSTANTIATE_TEST_SUITE_P(All, CommunicatorTest, ::testing::Combine(kKinds, ::testing::Range(1, 8)),
                         ParamName);
INSTANTIATE_TEST_SUITE_P(All, CommunicatorPeersTest,
                         ::testing::Combine(kKinds, ::testing::Values(2, 3, 7)), ParamName);

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

TEST_P(CommunicatorTest, RejectsInvalidSteps) {
  const CommunicatorRing ring = Ring();
  Communicator& communicator = *ring[0];
  char byte = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(communicator.Post({.number = -1})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      communicator.Post({.sends = {{.peer = 0, .data = &byte, .bytes = 1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      communicator.Post({.receives = {{.peer = 0, .data = &byte, .bytes = 1}}})));
  for (const int peer : {-1, size()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        communicator.Post({.sends = {{.peer = peer, .data = &byte, .bytes = 1}}})));
    EXPECT_TRUE(absl::IsInvalidArgument(
        communicator.Post({.receives = {{.peer = peer, .data = &byte, .bytes = 1}}})));
  }
  EXPECT_TRUE(communicator.Post({.number = 5}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(communicator.Post({.number = 6})));
  EXPECT_TRUE(communicator.Wait(After(kLong)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(communicator.Post({.number = 5})));
  EXPECT_TRUE(absl::IsInvalidArgument(communicator.Post({.number = 4})));
  PassAround(ring, 6);  // none of that broke anything
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

TEST_P(CommunicatorPeersTest, RejectsNegativeBytesAndNull) {
  const CommunicatorRing ring = Ring();
  char byte = 0;
  EXPECT_TRUE(
      absl::IsInvalidArgument(ring[0]->Post({.sends = {{.peer = 1, .data = &byte, .bytes = -1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ring[0]->Post({.receives = {{.peer = 1, .data = &byte, .bytes = -1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(ring[0]->Post({.sends = {{.peer = 1, .bytes = 1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(ring[0]->Post({.receives = {{.peer = 1, .bytes = 1}}})));
}

TEST_P(CommunicatorPeersTest, MatchesTransfersInOrder) {
  RunRanks(Ring(), [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    for (int64_t t = 0; t < 3; ++t) {
      StepOf step(rank, t);
      // Equal sizes can only be told apart by their order; both directions at once.
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
  constexpr int64_t kBytes = (int64_t{64} << 20) + 13;
  RunRanks(Ring(), [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    StepOf step(rank, 0);
    if (rank == 0) step.Send(1, kBytes);
    if (rank == 1) step.Receive(0, kBytes);
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

TEST_P(CommunicatorPeersTest, DeadlinePasses) {
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

TEST_P(CommunicatorPeersTest, DisagreeingEndsNeverMatch) {
  const CommunicatorRing ring = Ring();
  StepOf sender(0, 0), receiver(1, 0);
  sender.Send(1, 2000);
  receiver.Receive(0, 1000);
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    const CommStep& step = rank == 0 ? sender.step() : receiver.step();
    const absl::Status status = PostAndWait(communicator, step, After(milliseconds(200)));
    if (rank == 0 && communicator.name() == "nccl" && status.ok()) return;  // its bytes are gone
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status) ||
                absl::IsDataLoss(status))
        << status;
  });
}

TEST_P(CommunicatorPeersTest, AbortEndsAWait) {
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

TEST_P(CommunicatorPeersTest, AbortRacesPostAndWait) {
  for (int delay = 0; delay < 8; ++delay) {
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

TEST_P(CommunicatorPeersTest, PeersOfAnAbortedRankLearnOfIt) {
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

TEST_P(CommunicatorPeersTest, PeerVanishesBeforeItPosts) {
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

TEST_P(CommunicatorPeersTest, PeerVanishesInMidStep) {
  // Rank 1 posts the whole step but leaves without waiting: some of its bytes may be under way.
  CommunicatorRing ring = Ring();
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    StepOf step(rank, 0);
    step.Send(1 - rank, int64_t{16} << 20);
    step.Receive(1 - rank, int64_t{16} << 20);
    step.Send(1 - rank, 50);
    step.Receive(1 - rank, 60);  // nobody sends these
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

TEST_P(CommunicatorPeersTest, AbortGivesPostedMemoryBack) {
  const CommunicatorRing ring = Ring();
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    if (rank > 1) return;
    StepOf step(rank, 0);
    step.Receive(1 - rank, 1000000);
    if (rank == 1) step.Send(0, 1000000);
    const absl::Status posted = communicator.Post(step.step());
    EXPECT_TRUE(posted.ok() || absl::IsUnavailable(posted)) << posted;  // the peer may be faster
    communicator.Abort("leaves early");
    EXPECT_TRUE(absl::IsAborted(communicator.Wait(After(kLong))));  // its memory goes now
  });
}

TEST_P(CommunicatorPeersTest, ANewRingWorksAfterABrokenOne) {
  {
    CommunicatorRing broken = Ring();
    StepOf step(0, 0);
    step.Receive(1, 1000);
    EXPECT_FALSE(PostAndWait(*broken[0], step.step(), After(milliseconds(50))).ok());
  }
  PassAround(Ring());
}

}  // namespace
}  // namespace hilbert_ring::testing
