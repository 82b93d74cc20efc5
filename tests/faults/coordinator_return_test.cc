// The coordinator is killed in mid-job and is back after a while, as the command line with its
// default flags sees it: its next attempt comes at once.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/faults/fault_job.h"
#include "tests/faults/job_folder.h"
#include "tests/support/program.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLimit{60'000};
constexpr double kBackWithin = 1;  // seconds

// Whether a job of that kind is seen in time, or its output, for it may be short.
bool AwaitJob(const std::string& address, const std::string& out,
              const std::function<bool(const v1::Job&)>& wanted) {
  const auto channel = client::Connect(address);
  const Clock::time_point end = Clock::now() + kLimit;
  while (Clock::now() < end) {
    const auto list = client::RequestJobs(channel);
    if (list.ok() && std::any_of(list->jobs().begin(), list->jobs().end(), wanted)) return true;
    if (std::filesystem::exists(out)) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class CoordinatorReturn : public ::testing::TestWithParam<double> {};

TEST_P(CoordinatorReturn, TheClientIsBackWithinASecond) {
  const FaultJob job = MakeZeroJob(1 << 14, 4, 64, 1 << 14);
  const JobFolder files(job.spec);
  ASSERT_TRUE(files.made());
  const auto cluster = StartFaultCluster({.workers = 2}).value();
  auto client =
      Program::Start({.arguments = files.Command(cluster->address()), .log = files.log()});
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(AwaitJob(cluster->address(), files.out(), [](const v1::Job& seen) {
    return seen.state() == v1::Job::STATE_COMPUTING;
  }));
  ASSERT_FALSE(std::filesystem::exists(files.out())) << "the job ended before";
  kill(cluster->coordinator(), SIGKILL);
  std::this_thread::sleep_for(std::chrono::duration<double>(GetParam()));
  ASSERT_TRUE(cluster->RestartCoordinator().ok());
  const absl::Status restored = cluster->Restore(kLimit);
  ASSERT_TRUE(restored.ok()) << restored << cluster->Logs();
  const Clock::time_point back = Clock::now();
  // What a client that starts now takes on this machine as it is, beside the one that comes back.
  auto fresh =
      Program::Start({.arguments = {files.Command("").front(),
                                    absl::StrCat("--server=", cluster->address()), "jobs"}});
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  auto fresh_seconds = std::async(std::launch::async, [&] {
    EXPECT_TRUE((*fresh)->AwaitEnd(kLimit).ok());
    return SecondsSince(back);
  });
  ASSERT_TRUE(AwaitJob(cluster->address(), files.out(), [](const v1::Job& seen) {
    return seen.attempt() > 0 && seen.state() != v1::Job::STATE_QUEUED;
  })) << FileText(files.log());
  const double seconds = SecondsSince(back);
  EXPECT_LT(seconds, kBackWithin + fresh_seconds.get()) << FileText(files.log());
  RecordProperty("seconds", absl::StrCat(seconds));
  const auto how = (*client)->AwaitEnd(kLimit);
  ASSERT_TRUE(how.ok()) << how.status();
  EXPECT_EQ(*how, "exit status 0") << FileText(files.log());
  EXPECT_TRUE(std::filesystem::exists(files.out()));
}

INSTANTIATE_TEST_SUITE_P(Seconds, CoordinatorReturn,
                         ::testing::ValuesIn(AtDepth<std::vector<double>>({2}, {0.5, 3},
                                                                          {0.5, 2, 3, 4})));

}  // namespace
}  // namespace hilbert_ring::testing
