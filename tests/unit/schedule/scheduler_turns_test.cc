#include <algorithm>
#include <list>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/unit/schedule/scheduler_fixture.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Short jobs pass a long job only until its wait makes up for its length.
TEST_F(SchedulerTest, ALongJobWaitsAtMostAboutItsLengthLonger) {
  Pass(0);
  Start(1);
  std::optional<Scheduler::Place> running(Enter("x", {{1, 100, 10}}));
  auto long_job = Enter("x", {{1, 10, 10}});
  Pass(5);
  auto early = Enter("x", {{1, 1, 10}});
  Pass(4.5);
  auto late = Enter("x", {{1, 1, 10}});
  running.reset();
  ASSERT_TRUE(Now(early).has_value()) << "10 s less 9.5 are more than 1 s less 4.5";
  { const Scheduler::Place gone = std::move(early); }
  ASSERT_TRUE(Now(long_job).has_value()) << "10 s less 9.5 are less than 1 s";
  EXPECT_FALSE(Now(late).has_value());
}

class SchedulerTurnsTest : public SchedulerTest {
 protected:
  SchedulerTurnsTest() {
    Pass(0);
    Start(1);
  }
  void Ask(const std::string& caller, int jobs, double seconds = 10) {
    for (int i = 0; i < jobs; ++i) {
      waiting_[caller].push_back(Enter(caller, {{1, seconds, 10}}));
    }
  }
  std::string Serve(int jobs) {
    std::string order;
    for (size_t before = 0; jobs-- > 0; before = order.size()) {
      for (auto& [caller, places] : waiting_) {
        const auto running =
            std::find_if(places.begin(), places.end(),
                         [](Scheduler::Place& place) { return Now(place).has_value(); });
        if (running == places.end()) continue;
        order += caller;
        const Scheduler::Place gone = std::move(*running);
        places.erase(running);
        break;
      }
      if (order.size() == before) return order + "?";
    }
    return order;
  }

  std::map<std::string, std::list<Scheduler::Place>> waiting_;
};

TEST_F(SchedulerTurnsTest, ACallerOfManyJobsGetsNoMoreThanOneOfFew) {
  Ask("a", 8);
  Ask("b", 3);
  EXPECT_EQ(Serve(11), "abababaaaaa");
}

TEST_F(SchedulerTurnsTest, TurnsAreOfWorkerTimeNotOfJobs) {
  Ask("a", 3, 30);
  Ask("b", 9, 10);
  EXPECT_EQ(Serve(12), "abbbbabbbabb") << "with equal time the shorter job goes first";
}

// A newcomer starts at the least time that another caller had: it neither waits for earlier use nor
// catches up.
TEST_F(SchedulerTurnsTest, ANewcomerTakesTurnsFromNowOn) {
  Ask("a", 12);
  EXPECT_EQ(Serve(6), "aaaaaa");
  Ask("b", 4);
  EXPECT_EQ(Serve(9), "ababababa");
}

// A caller without jobs loses its record, and returns as a newcomer.
TEST_F(SchedulerTurnsTest, ACallerThatComesBackIsANewcomer) {
  Ask("a", 8);
  Ask("b", 1, 1000);
  EXPECT_EQ(Serve(2), "ab");
  Ask("b", 2);
  EXPECT_EQ(Serve(6), "ababaa");
}

TEST_F(SchedulerTurnsTest, TimeOfLostWorkersIsRefunded) {
  Ask("a", 1, 100);
  Ask("b", 2);
  Ask("a", 1);
  Scheduler::Place& lost = waiting_["a"].front();
  ASSERT_TRUE(Now(lost).has_value());
  lost.GiveBack();
  EXPECT_EQ(Serve(1), "b");
  lost.WaitAgain({{1, 5, 10}}, {});
  EXPECT_EQ(Serve(3), "aab") << "a's second job precedes the job that lost its workers";
}

TEST_F(SchedulerTurnsTest, AJobThatLostWorkersGoesOnAfterTheScheduleHasClosed) {
  Ask("a", 1);
  Ask("b", 1);
  Scheduler::Place& again = waiting_["a"].front();
  ASSERT_TRUE(Now(again).has_value());
  again.GiveBack();
  ASSERT_TRUE(Now(waiting_["b"].front()).has_value());
  scheduler_->Close(absl::UnavailableError("stopping"));
  again.WaitAgain({{1, 10, 10}}, {});
  const JobStop stop;
  EXPECT_EQ(wire::ReasonOf(again.Await(stop, Deadline::min(), kSilent).status()), "QUEUE_TIMEOUT")
      << "it waits for its worker";
  waiting_.erase("b");
  EXPECT_TRUE(Now(again).has_value());
}

// A late job is expected to need a tenth of its time more.
TEST_F(SchedulerTurnsTest, ALateJobIsNotExpectedToEndAtOnce) {
  auto running = Enter("a", {{1, 100, 10}});
  ASSERT_TRUE(Now(running).has_value());
  Pass(99);
  EXPECT_NEAR(scheduler_->SecondsOfWork(), 10, 0.01);
  Pass(500);
  EXPECT_NEAR(scheduler_->SecondsOfWork(), 10, 0.01);
}

}  // namespace
}  // namespace hilbert_ring::server
