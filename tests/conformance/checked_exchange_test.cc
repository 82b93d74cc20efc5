// A checked exchange over a bad network never gives a wrong result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
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

// Each step has two transfers of one size, and different bytes, from rank 0 to rank 1.
class CheckedExchangeTest : public ::testing::TestWithParam<RingKind> {
 protected:
  // Returns rank 1's status of step `last`, after the steps before.
  absl::Status Exchange(Fault fault, int64_t last) {
    const CommunicatorRing ring = FaultyRing(fault);
    absl::Status status;
    RunRanks(ring, [&](int rank, Communicator& communicator) {
      for (int64_t t = 0; t <= last; ++t) {
        const std::vector<char> first = Block(t, 0), second = Block(t, 1);
        std::vector<char> received[2] = {std::vector<char>(kBytes), std::vector<char>(kBytes)};
        CommStep step{.number = t};
        if (rank == 0) {
          step.sends = {{1, first.data(), kBytes}, {1, second.data(), kBytes}};
        } else {
          step.receives = {{0, received[0].data(), kBytes}, {0, received[1].data(), kBytes}};
        }
        const absl::Status posted = communicator.Post(step);
        const absl::Status ended = posted.ok() ? communicator.Wait(After(kLong)) : posted;
        if (rank == 1) status = ended;
        if (!ended.ok()) return;
      }
    });
    return status;
  }

  CommunicatorRing FaultyRing(Fault fault) const {
    auto ring = MakeCommunicatorRing(GetParam(), 2);
    EXPECT_TRUE(ring.ok()) << ring.status();
    return Wrapped(*std::move(ring), [fault](std::unique_ptr<Communicator> inner) {
      return MakeChecked(MakeFaulty(std::move(inner), fault));
    });
  }

  static std::vector<char> Block(int64_t step, int place) {
    return std::vector<char>(kBytes, static_cast<char>(2 * step + place));
  }
};

INSTANTIATE_TEST_SUITE_P(All, CheckedExchangeTest,
                         ::testing::Values(RingKind::kInProcess, RingKind::kGloo),
                         [](const auto& info) { return RingKindName(info.param); });

TEST_P(CheckedExchangeTest, WrongBytesAreDataLoss) {
  struct {
    Fault fault;
    int64_t step;
  } const cases[] = {{Fault::kCorrupt, 0},
                     {Fault::kReorder, 0},
                     // The checksums of step 0 come again with its bytes, and match them.
                     {Fault::kRepeat, 1}};
  for (const auto& [fault, step] : cases) {
    const absl::Status status = Exchange(fault, step);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(),
                HasSubstr(absl::StrCat("from rank 0 in step ", step, ", receives[0]: CRC32C is")));
    EXPECT_EQ(PeerOf(status), 0);
  }
}

TEST_P(CheckedExchangeTest, ALossBreaksForGood) {
  const CommunicatorRing ring = FaultyRing(Fault::kCorrupt);
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
  // Peers notice that the rank is gone.
  ASSERT_FALSE(ring[0]->Post({.number = 1, .receives = {{1, &in, 1}}}).ok() &&
               ring[0]->Wait(After(kLong)).ok());
}

}  // namespace
}  // namespace hilbert_ring::testing
