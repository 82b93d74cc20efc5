// Tests rings whose ranks are processes, like workers. Threads of one process cannot be killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "absl/strings/str_cat.h"
#include "engine/comm/nccl_end.h"
#include "tests/conformance/communicator_rings.h"
#include "tests/conformance/rank_processes.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::StartsWith;

constexpr milliseconds kStartLimit = std::chrono::seconds(60);
constexpr milliseconds kStepLimit = std::chrono::seconds(3);
// NCCL's abort and the exit of a process with a GPU may take this long after a step's deadline.
constexpr milliseconds kEndLimit = std::chrono::seconds(10);

class RingProcessesTest : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    if (kind() != "nccl") return;
    const absl::Status there = MakeNcclEnd(0).status();
    if (!there.ok()) GTEST_SKIP() << there;
  }

  // Gloo reports a lost rank at once. NCCL may wait for the step's deadline.
  ::testing::Matcher<std::string> IsLoss() const {
    const auto unavailable = StartsWith("UNAVAILABLE: waited for rank");
    if (kind() == "gloo") return unavailable;
    return AnyOf(unavailable, StartsWith("DEADLINE_EXCEEDED: waited for rank"));
  }

  std::string kind() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, RingProcessesTest,
                         ::testing::Combine(::testing::Values("gloo", "nccl"),
                                            ::testing::Values(2, 4)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), std::get<1>(info.param));
                         });

TEST_P(RingProcessesTest, ExchangeAllToAll) {
  RankProcesses ring(kind(), size(), "steps", std::chrono::seconds(30));
  ASSERT_TRUE(ring.AwaitEnd(After(2 * kStartLimit)));
  for (int rank = 0; rank < size(); ++rank) EXPECT_EQ(ring.Outcome(rank), "OK") << "rank " << rank;
}

TEST_P(RingProcessesTest, SurvivorsOfAKilledRankFailByTheDeadline) {
  RankProcesses ring(kind(), size(), "endless", kStepLimit);
  ASSERT_TRUE(ring.AwaitRunning(After(kStartLimit))) << ring.Outcome(0);
  ring.Kill(1);
  EXPECT_TRUE(ring.AwaitEnd(After(kStepLimit + kEndLimit)));
  EXPECT_EQ(ring.Outcome(1), "");
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == 1) continue;
    EXPECT_THAT(ring.Outcome(rank), IsLoss()) << "rank " << rank;
  }
}

TEST_P(RingProcessesTest, AnAbortEndsItsRankAndThenTheOthers) {
  RankProcesses ring(kind(), size(), "abort", kStepLimit);
  ASSERT_TRUE(ring.AwaitEnd(After(kStartLimit + kStepLimit + kEndLimit)));
  EXPECT_THAT(ring.Outcome(0), StartsWith("ABORTED: rank 0 gives up"));
  for (int rank = 1; rank < size(); ++rank) {
    EXPECT_THAT(ring.Outcome(rank), IsLoss()) << "rank " << rank;
  }
}

}  // namespace
}  // namespace hilbert_ring::testing
