#include "server/coordinator/warm_up_trial.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/membership.h"

namespace hilbert_ring::testing {
namespace {

using server::Member;
using server::Members;
using server::WarmUpTrial;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

bool Rests(const Member& worker) {
  return worker.rests_until.load() > server::Clock::now().time_since_epoch();
}

// Workers by their addresses, "a" and "b" and so on, and the jobs that they got: "ab".
class WarmUpTrialTest : public ::testing::Test {
 protected:
  // The next worker.
  std::shared_ptr<const Member> Join() {
    auto worker = std::make_shared<Member>();
    worker->address = std::string(1, static_cast<char>('a' + live_.size()));
    live_.push_back(worker);
    return worker;
  }

  bool Passes(size_t needed) { return trial_.Try(live_, needed, {}).ok(); }

  absl::Status Run(const Members& workers) {
    std::string names;
    for (const auto& worker : workers) names += worker->address;
    jobs_.push_back(names);
    for (const std::string& failing : failing_) {
      const bool all = std::ranges::all_of(
          failing, [&](char name) { return names.find(name) != std::string::npos; });
      if (all) return absl::InternalError("\nno\x01rows of " + failing);
    }
    return absl::OkStatus();
  }

  Members live_;
  std::vector<std::string> failing_;  // a job fails that has all of the workers of one of these
  std::vector<std::string> jobs_;
  WarmUpTrial trial_{
      [this](const Members& workers, const std::stop_token&) { return Run(workers); }};
};

TEST_F(WarmUpTrialTest, IsOneJobOverAllWhereAllAreGood) {
  for (int i = 0; i < 3; ++i) Join();
  EXPECT_TRUE(Passes(1));
  EXPECT_THAT(jobs_, ElementsAre("abc"));
  trial_.RestFailed();
  EXPECT_EQ(trial_.Failures(), "");
  for (const auto& worker : live_) EXPECT_FALSE(Rests(*worker)) << worker->address;
}

TEST_F(WarmUpTrialTest, AWorkerThatAlwaysFailsHoldsNobodyUpAfterThreeTries) {
  for (int i = 0; i < 3; ++i) Join();
  failing_ = {"a"};
  EXPECT_FALSE(Passes(1));
  EXPECT_FALSE(Passes(1));
  EXPECT_EQ(trial_.Failures(), "");
  jobs_.clear();
  EXPECT_TRUE(Passes(1));
  EXPECT_THAT(jobs_, ElementsAre("abc", "a", "b", "c", "bc"));
  EXPECT_EQ(trial_.Failures(), "worker a failed its warm-up 3 times:  no rows of a\n");
  EXPECT_FALSE(Rests(*live_[0])) << "before the service is ready";
  trial_.RestFailed();
  EXPECT_TRUE(Rests(*live_[0]));
  EXPECT_FALSE(Rests(*live_[1]));
  EXPECT_NE(trial_.Failures(), "") << "also once the service is ready";
}

TEST_F(WarmUpTrialTest, WhereTooFewPassItFailsAndSaysWhoDidUntilTheyPass) {
  for (int i = 0; i < 3; ++i) Join();
  failing_ = {"a", "b"};
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Passes(2));
  EXPECT_EQ(trial_.tried(), 3u);
  EXPECT_EQ(trial_.Failures(),
            "worker a failed its warm-up 5 times:  no rows of a\n"
            "worker b failed its warm-up 5 times:  no rows of b\n");
  failing_ = {"a"};
  EXPECT_TRUE(Passes(2)) << "b is well again, and a goes on to fail";
  EXPECT_THAT(trial_.Failures(), HasSubstr("worker a failed"));
  EXPECT_THAT(trial_.Failures(), Not(HasSubstr("worker b")));
}

TEST_F(WarmUpTrialTest, ThreeFailuresCountInARowAlone) {
  for (int i = 0; i < 2; ++i) Join();
  for (int i = 0; i < 3; ++i) {
    failing_ = {"a"};
    EXPECT_FALSE(Passes(1));
    EXPECT_FALSE(Passes(1));
    failing_ = {"ab"};  // each passes alone
    EXPECT_FALSE(Passes(1));
  }
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, AWorkerThatFailsBesideOthersAloneIsTheOneWithoutWhichTheyPass) {
  for (int i = 0; i < 3; ++i) Join();
  failing_ = {"ab", "bc"};
  EXPECT_FALSE(Passes(2));
  EXPECT_FALSE(Passes(2));
  EXPECT_TRUE(Passes(2));
  EXPECT_THAT(trial_.Failures(), HasSubstr("worker b failed its warm-up 3 times"));
}

TEST_F(WarmUpTrialTest, OfTwoThatFailOnlyTogetherNobodyIsToBlame) {
  for (int i = 0; i < 2; ++i) Join();
  failing_ = {"ab"};
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Passes(1));
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, AWorkerThatHasLeftIsNamedNoMore) {
  for (int i = 0; i < 2; ++i) Join();
  failing_ = {"a"};
  for (int i = 0; i < 3; ++i) Passes(1);
  ASSERT_NE(trial_.Failures(), "");
  auto departed = live_[0]->departed;  // shares its state
  departed.request_stop();
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, NobodyIsToBlameOnceItIsToldToStop) {
  for (int i = 0; i < 2; ++i) Join();
  failing_ = {"a"};
  std::stop_source stop;
  stop.request_stop();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(trial_.Try(live_, 1, stop.get_token()).ok());
  EXPECT_THAT(jobs_, ElementsAre("ab", "ab", "ab", "ab", "ab"));
  EXPECT_EQ(trial_.Failures(), "");
}

}  // namespace
}  // namespace hilbert_ring::testing
