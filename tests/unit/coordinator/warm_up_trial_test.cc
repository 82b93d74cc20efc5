#include "server/coordinator/warm_up_trial.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cluster/membership.h"
#include "tests/support/manual_time.h"

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
    worker->address = std::string(1, static_cast<char>('a' + joined_++));
    live_.push_back(worker);
    return worker;
  }

  bool Passes(size_t needed) { return trial_.Try(needed, {}).ok(); }

  bool IsBusy(const Member& worker) const {
    return busy_.find(worker.address) != std::string::npos;
  }

  // As a job is that waits for its turn until it gives that up.
  WarmUpTrial::Outcome Run(const WarmUpTrial::Probe& probe) {
    if (before_job_) before_job_();
    Members workers = probe.workers;
    std::erase_if(workers, [this](const auto& worker) { return IsBusy(*worker); });
    if (workers.size() < probe.least) {
      for (int looks = 0; looks < 100 && !probe.give_up(); ++looks) {
        time_.Advance(std::chrono::milliseconds(200));
        if (while_waiting_) while_waiting_();
      }
      return {.status = absl::ResourceExhaustedError("its turn did not come")};
    }
    std::string names;
    for (const auto& worker : workers) names += worker->address;
    jobs_.push_back(names);
    const auto has = [&names](const std::string& all) {
      return std::ranges::all_of(all,
                                 [&](char name) { return names.find(name) != std::string::npos; });
    };
    if (!hung_.empty() && has(hung_)) time_.Advance(std::chrono::seconds(60));
    for (const std::string& failing : failing_) {
      if (!has(failing)) continue;
      return {.status = absl::InternalError("\nno\x01rows of " + failing), .workers = workers};
    }
    return {.status = absl::OkStatus(), .workers = workers};
  }

  ManualTime time_;
  int joined_ = 0;
  Members live_;
  std::vector<std::string> failing_;  // a job fails that has all of the workers of one of these
  std::string hung_;                  // a minute passes where a job has all of these
  std::string busy_;                  // they have callers' jobs
  std::function<void()> before_job_, while_waiting_;
  std::vector<std::string> jobs_;
  WarmUpTrial trial_{
      [this] { return live_; },
      [this](const WarmUpTrial::Probe& probe, const std::stop_token&) { return Run(probe); },
      time_};
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
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Passes(2));
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, WhereOneIsEnoughThoseThatFailOnlyTogetherAreReadyAfterThreeTries) {
  for (int i = 0; i < 3; ++i) Join();
  failing_ = {"ab", "bc", "ac"};
  EXPECT_FALSE(Passes(1));
  EXPECT_FALSE(Passes(1));
  failing_ = {"a"};
  EXPECT_FALSE(Passes(1)) << "three in a row";
  failing_ = {"ab", "bc", "ac"};
  EXPECT_FALSE(Passes(1));
  EXPECT_FALSE(Passes(1));
  EXPECT_TRUE(Passes(1));
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, WhereEnoughAreFreeThoseThatHaveJobsAreLeftAside) {
  for (int i = 0; i < 3; ++i) Join();
  busy_ = "a";
  EXPECT_TRUE(Passes(2));
  EXPECT_THAT(jobs_, ElementsAre("bc"));
  EXPECT_EQ(trial_.tried(), 2u);
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, WhereTooFewAreFreeNobodyIsToBlame) {
  for (int i = 0; i < 2; ++i) Join();
  busy_ = "a";
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Passes(2));
  EXPECT_THAT(jobs_, ElementsAre()) << "no worker is tried alone";
  EXPECT_EQ(trial_.Failures(), "");
  busy_ = "";
  EXPECT_TRUE(Passes(2));
}

TEST_F(WarmUpTrialTest, AWorkerThatComesMeanwhileIsTriedAtOnce) {
  for (int i = 0; i < 2; ++i) Join();
  busy_ = "a";
  const auto begun = time_.Now();
  while_waiting_ = [this] {
    if (live_.size() == 2) Join();
  };
  EXPECT_FALSE(Passes(2));
  EXPECT_TRUE(Passes(2));
  EXPECT_THAT(jobs_, ElementsAre("bc"));
  EXPECT_LT(time_.Now() - begun, std::chrono::seconds(1));
}

TEST_F(WarmUpTrialTest, ASearchLeavesThoseThatHaveJobsAsTheyAre) {
  for (int i = 0; i < 3; ++i) Join();
  failing_ = {"a", "b"};
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Passes(3));
  jobs_.clear();
  failing_ = {"a"};
  before_job_ = [this] { busy_ = jobs_.empty() ? "" : "b"; };
  EXPECT_FALSE(Passes(3));
  EXPECT_THAT(trial_.Failures(), HasSubstr("worker a failed its warm-up 4 times"));
  EXPECT_THAT(trial_.Failures(), HasSubstr("worker b failed its warm-up 3 times"));
}

TEST_F(WarmUpTrialTest, ASearchEndsAfterAMinuteAndTheNextOneGoesOnThere) {
  for (int i = 0; i < 6; ++i) Join();
  failing_ = {"a", "b", "f"};
  hung_ = "a";
  const auto begun = time_.Now();
  EXPECT_FALSE(Passes(3));
  EXPECT_THAT(jobs_, ElementsAre("abcdef", "a"));
  EXPECT_LE(time_.Now() - begun, std::chrono::minutes(3));
  hung_ = "c";
  jobs_.clear();
  failing_ = {"a", "f"};
  EXPECT_FALSE(Passes(3));
  EXPECT_THAT(jobs_, ElementsAre("abcdef", "a", "b", "c")) << "what failed before comes first";
  jobs_.clear();
  EXPECT_FALSE(Passes(3));
  EXPECT_THAT(jobs_, ElementsAre("abcdef", "a", "d", "e", "f", "b", "c", "bcdef", "f", "b", "c"));
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

TEST_F(WarmUpTrialTest, AWorkerThatWorksOnceTheServiceIsReadyIsNamedNoMore) {
  for (int i = 0; i < 2; ++i) Join();
  failing_ = {"a"};
  time_.Advance(std::chrono::seconds(1));
  live_[0]->worked_at = time_.Now().time_since_epoch();  // in a job of the trial's own
  for (int i = 0; i < 3; ++i) Passes(1);
  trial_.RestFailed();
  EXPECT_THAT(trial_.Failures(), HasSubstr("worker a failed"));
  time_.Advance(std::chrono::seconds(61));
  EXPECT_THAT(trial_.Failures(), HasSubstr("worker a failed"));
  live_[0]->worked_at = time_.Now().time_since_epoch();
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, AWorkerThatHasLeftIsNotKept) {
  for (int i = 0; i < 2; ++i) Join();
  failing_ = {"a"};
  for (int i = 0; i < 3; ++i) Passes(1);
  trial_.RestFailed();
  const std::weak_ptr<const Member> failed = live_[0];
  live_.clear();
  EXPECT_TRUE(failed.expired());
  EXPECT_EQ(trial_.Failures(), "");
}

TEST_F(WarmUpTrialTest, NobodyIsToBlameOnceItIsToldToStop) {
  for (int i = 0; i < 2; ++i) Join();
  failing_ = {"a"};
  std::stop_source stop;
  stop.request_stop();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(trial_.Try(1, stop.get_token()).ok());
  EXPECT_THAT(jobs_, ElementsAre("ab", "ab", "ab", "ab", "ab"));
  EXPECT_EQ(trial_.Failures(), "");
}

}  // namespace
}  // namespace hilbert_ring::testing
