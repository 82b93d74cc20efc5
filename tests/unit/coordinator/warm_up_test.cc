#include "server/coordinator/warm_up.h"

#include <atomic>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

bool Logged(const JobRig& rig, const std::string& words) {
  for (const std::string& line : rig.lines()) {
    if (line.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(WarmUp, IsTriedAgainWhileItsRingCannotBeFormed) {
  JobRig rig;
  for (const int worker : {0, 1}) {
    rig.worker(worker).AtEachRing([](auto&, auto&) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no way to its peers");
    });
  }
  std::atomic<bool> passed = false;
  server::WarmUp warm_up(rig.services(), 2, [&] { passed = true; });
  EXPECT_TRUE(rig.Until([&] { return Logged(rig, "job ended: job=warm-up-2"); }));
  EXPECT_FALSE(passed);
  EXPECT_NE(warm_up.Why(), "");
  EXPECT_TRUE(rig.jobs().Ended().empty()) << "no list of jobs has it";
}

TEST(WarmUp, WaitsForItsWorkers) {
  JobRig rig;
  rig.Leave(0);
  server::WarmUp warm_up(rig.services(), 2, [] { FAIL() << "one worker is not enough"; });
  EXPECT_TRUE(rig.time().AwaitWait(std::chrono::milliseconds(500)));
  EXPECT_EQ(rig.worker(1).runs(), 0);
  rig.Join(0);
  EXPECT_TRUE(rig.Until([&] { return rig.worker(1).runs() > 0; }));
  warm_up.Stop();
}

// The fake workers' rows are wrong if a row sees more than itself.
TEST(WarmUp, FailsOnAWrongRow) {
  JobRig rig;
  std::atomic<bool> passed = false;
  server::WarmUp warm_up(rig.services(), 2, [&] { passed = true; });
  EXPECT_TRUE(rig.Until([&] { return !warm_up.Why().empty(); }));
  EXPECT_THAT(warm_up.Why(), HasSubstr("computed again in float64"));
  EXPECT_FALSE(passed);
}

}  // namespace
}  // namespace hilbert_ring::testing
