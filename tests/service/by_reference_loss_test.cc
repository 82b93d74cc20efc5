// Jobs by reference of which something is lost on the way: a root, a file, a client, a process.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/service/by_reference.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::seconds;

class ByReferenceLoss : public ByReferenceTest {};
INSTANTIATE_TEST_SUITE_P(Places, ByReferenceLoss, ::testing::Values(WorkerPlace::kLocal),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(ByReferenceLoss, ARootThatVanishesIsNamed) {
  Start();
  const JobSpec spec = PlainSpec();
  const v1::Open open = Write(spec, RandomInputs(spec, 1));
  std::filesystem::rename(folder_ / "root", folder_ / "moved");
  EXPECT_EQ(ReasonOf(open), "DATA_ROOT_GONE");
  std::filesystem::create_directory(folder_ / "root");
  EXPECT_EQ(ReasonOf(open), "DATA_ROOT_GONE");
  std::filesystem::remove(folder_ / "root");
  std::filesystem::rename(folder_ / "moved", folder_ / "root");
  // The workers look again, too.
  absl::Status status;
  for (int i = 0; i < 600 && !(status = Run(open).status()).ok(); ++i) {
    EXPECT_EQ(wire::ReasonOf(status), "DATA_ROOT_NOT_ON_WORKERS") << status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ByReferenceLoss, AnInputThatChangesDuringTheJobIsAnError) {
  const JobSpec spec = PlainSpec({.tokens = 20'000, .heads = 8, .dim = 64, .segment = 10'000});
  const auto call = Admitted(spec, RandomInputs(spec, 1));
  ASSERT_NE(call, nullptr);
  std::fstream(folder_ / "root/in/V.npy") << "?";
  EXPECT_EQ(wire::ReasonOf(call->Finish()), "FILE_CHANGED");
  ExpectNothingLeft();
}

TEST_P(ByReferenceLoss, AJobThatIsGivenUpLeavesNothing) {
  const JobSpec spec = PlainSpec({.tokens = 30'000, .heads = 8, .dim = 64, .segment = 15'000});
  {
    const auto call = Admitted(spec, RandomInputs(spec, 1));
    ASSERT_NE(call, nullptr);
    EXPECT_EQ(Stray().size(), 2);
  }  // the client is gone
  for (int i = 0; i < 3000 && !Stray().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ExpectNothingLeft();
}

class ByReferenceBeside : public ByReferenceTest {};
INSTANTIATE_TEST_SUITE_P(Places, ByReferenceBeside, ::testing::Values(WorkerPlace::kBeside),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(ByReferenceBeside, AWorkerThatIsKilledCostsTheJobNothingButTime) {
  const JobSpec spec = PlainSpec({.tokens = 20'000, .heads = 8, .dim = 64, .segment = 10'000});
  const EngineInputs inputs = RandomInputs(spec, 1);
  const auto call = Admitted(spec, inputs);
  ASSERT_NE(call, nullptr);
  kill(cluster_->Workers().front(), SIGKILL);
  ASSERT_TRUE(cluster_->StartEnded().ok());
  ExpectRecovered(*call, spec, inputs);
}

TEST_P(ByReferenceBeside, ACoordinatorThatIsKilledLeavesNothingAfterItsRestart) {
  const JobSpec spec = PlainSpec({.tokens = 30'000, .heads = 8, .dim = 64, .segment = 15'000});
  const auto call = Admitted(spec, RandomInputs(spec, 1));
  ASSERT_NE(call, nullptr);
  kill(cluster_->coordinator(), SIGKILL);
  EXPECT_FALSE(call->Finish().ok());
  EXPECT_EQ(Stray().size(), 2);
  ASSERT_TRUE(cluster_->RestartCoordinator().ok());
  ASSERT_TRUE(cluster_->Restore(seconds(60)).ok());
  ExpectNothingLeft();
}

}  // namespace
}  // namespace hilbert_ring::testing
