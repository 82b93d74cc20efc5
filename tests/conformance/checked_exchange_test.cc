// What a bad network does to a checked exchange: never a wrong result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/base/peer_error.h"
#include "engine/comm/checked.h"
#include "tests/conformance/communicator_rings.h"
#include "tests/conformance/faulty.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLong = std::chrono::seconds(20);
constexpr int64_t kBytes = 30'000;

// Two transfers of one size from rank 0 to rank 1 in each step, other bytes in each.
class CheckedExchangeTest : public ::testing::TestWithParam<RingKind> {
 protected:
  // Statuses by rank of step `last`, after those before; what arrived is in received_.
  std::vector<absl::Status> Exchange(const FaultOptions& options, bool checked, int64_t last,
                                     milliseconds limit = kLong) {
    faults_ = std::make_shared<Faults>(options, 1);
    auto ring = MakeCommunicatorRing(GetParam(), 2);
    EXPECT_TRUE(ring.ok()) << ring.status();
    const CommunicatorRing faulty =
        Wrapped(*std::move(ring), [&](std::unique_ptr<Communicator> inner) {
          inner = MakeFaulty(std::move(inner), faults_);
          return checked ? MakeChecked(std::move(inner)) : std::move(inner);
        });
    std::vector<absl::Status> statuses(2);
    RunRanks(faulty, [&](int rank, Communicator& communicator) {
      for (int64_t t = 0; t <= last && statuses[rank].ok(); ++t) {
        const std::vector<char> first = Block(t, 0), second = Block(t, 1);
        CommStep step{.number = t};
        if (rank == 0) {
          step.sends = {{1, first.data(), kBytes}, {1, second.data(), kBytes}};
        } else {
          received_ = {std::vector<char>(kBytes), std::vector<char>(kBytes)};
          step.receives = {{0, received_[0].data(), kBytes}, {0, received_[1].data(), kBytes}};
        }
        const absl::Status posted = communicator.Post(step);
        statuses[rank] = posted.ok() ? communicator.Wait(After(limit)) : posted;
      }
    });
    return statuses;
  }

  static std::vector<char> Block(int64_t step, int place) {
    return std::vector<char>(kBytes, static_cast<char>(2 * step + place));
  }

  bool Arrived(int64_t step) const {
    return received_[0] == Block(step, 0) && received_[1] == Block(step, 1);
  }

  std::shared_ptr<Faults> faults_;
  std::vector<std::vector<char>> received_;
};

INSTANTIATE_TEST_SUITE_P(All, CheckedExchangeTest,
                         ::testing::Values(RingKind::kInProcess, RingKind::kGloo),
                         [](const auto& info) { return RingKindName(info.param); });

TEST_P(CheckedExchangeTest, CorruptionReordersAndRepeatsAreSilentWithoutIt) {
  for (const FaultOptions& options :
       {FaultOptions{.corrupt = 1}, FaultOptions{.reorder = 1}, FaultOptions{.repeat = 1}}) {
    const std::vector<absl::Status> statuses = Exchange(options, false, 1);
    EXPECT_TRUE(statuses[1].ok()) << statuses[1];
    EXPECT_FALSE(Arrived(1));
    EXPECT_GT(faults_->count(), 0);
  }
}

TEST_P(CheckedExchangeTest, CorruptionIsDataLoss) {
  const std::vector<absl::Status> statuses = Exchange({.corrupt = 1}, true, 0);
  EXPECT_TRUE(absl::IsDataLoss(statuses[1])) << statuses[1];
  EXPECT_THAT(statuses[1].message(), HasSubstr("from rank 0 in step 0, receives[0]: CRC32C is"));
  EXPECT_EQ(PeerOf(statuses[1]), 0);
}

TEST_P(CheckedExchangeTest, ReorderingIsDataLoss) {
  const std::vector<absl::Status> statuses = Exchange({.reorder = 1}, true, 0);
  EXPECT_TRUE(absl::IsDataLoss(statuses[1])) << statuses[1];
  EXPECT_THAT(statuses[1].message(), HasSubstr("from rank 0 in step 0, receives[0]"));
}

TEST_P(CheckedExchangeTest, ARepeatedStepIsDataLoss) {
  // Bytes and checksums of step 0 come once more, and belong together.
  const std::vector<absl::Status> statuses = Exchange({.repeat = 1}, true, 1);
  EXPECT_TRUE(absl::IsDataLoss(statuses[1])) << statuses[1];
  EXPECT_THAT(statuses[1].message(), HasSubstr("from rank 0 in step 1, receives[0]"));
}

TEST_P(CheckedExchangeTest, ADropIsWaitedForToTheDeadline) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<absl::Status> statuses = Exchange({.drop = 1}, true, 0, milliseconds(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[1])) << statuses[1];
  EXPECT_THAT(statuses[1].message(), HasSubstr("waited for rank 0 in step 0"));
  EXPECT_EQ(PeerOf(statuses[1]), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_P(CheckedExchangeTest, ADelayIsNoFault) {
  const std::vector<absl::Status> statuses = Exchange({.delay = 1}, true, 3);
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Arrived(3));
}

TEST_P(CheckedExchangeTest, ALossBreaksForGood) {
  faults_ = std::make_shared<Faults>(FaultOptions{.corrupt = 1}, 1);
  auto made = MakeCommunicatorRing(GetParam(), 2);
  ASSERT_TRUE(made.ok());
  const CommunicatorRing ring = Wrapped(*std::move(made), [&](std::unique_ptr<Communicator> inner) {
    return MakeChecked(MakeFaulty(std::move(inner), faults_));
  });
  const char out = 1;
  char in = 0;
  ASSERT_TRUE(ring[0]->Post({.number = 0, .sends = {{1, &out, 1}}}).ok());
  ASSERT_TRUE(ring[1]->Post({.number = 0, .receives = {{0, &in, 1}}}).ok());
  std::thread sender([&] { ring[0]->Wait(After(kLong)).IgnoreError(); });
  const absl::Status lost = ring[1]->Wait(After(kLong));
  sender.join();
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_EQ(ring[1]->Wait(After(kLong)), lost);
  EXPECT_EQ(ring[1]->Post({.number = 1}), lost);
  // Its peers learn that it is gone.
  ASSERT_FALSE(ring[0]->Post({.number = 1, .receives = {{1, &in, 1}}}).ok() &&
               ring[0]->Wait(After(kLong)).ok());
}

}  // namespace
}  // namespace hilbert_ring::testing
