#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/schedule/scheduler_fixture.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

TEST_F(SchedulerTest, AJobTakesTheSizeAtWhichItEndsFirst) {
  Start(2);
  auto a = Enter("x", {{1, 1.0, 10}, {2, 0.9, 10}});
  auto b = Enter("x", {{1, 1.0, 10}, {2, 0.9, 10}});
  EXPECT_EQ(Now(a)->members.size(), 2u);
  EXPECT_FALSE(Now(b).has_value());
}

// A late job's end is predicted for the next moment again and again.
TEST_F(SchedulerTest, TheFirstOfSizesThatEndTogetherIsTaken) {
  Start(3);
  const std::vector<JobSize> sizes = {{3, 1, 0}, {2, 1, 0}};
  {
    auto all = Enter("x", sizes);
    ASSERT_TRUE(Now(all).has_value());
    EXPECT_EQ(Now(all)->members.size(), 3u);
    EXPECT_EQ(scheduler_->busy_workers(), 3);
  }
  EXPECT_EQ(scheduler_->busy_workers(), 0);
  std::optional<Scheduler::Place> late(Enter("x", {{1, 0.001, 10}}));
  ASSERT_TRUE(Now(*late).has_value());
  Pass(60);
  auto free = Enter("x", sizes);
  ASSERT_TRUE(Now(free).has_value());
  EXPECT_EQ(Now(free)->members.size(), 2u);
  EXPECT_FALSE(Now(free)->express());
  auto waits = Enter("x", {{2, 1, 0}});
  EXPECT_FALSE(Now(waits).has_value());
}

TEST_F(SchedulerTest, JobsThatGainNothingFromMoreWorkersRunSideBySide) {
  Start(2);
  auto c = Enter("x", {{1, 0.5, 10}, {2, 0.6, 10}});
  auto d = Enter("x", {{1, 0.5, 10}, {2, 0.6, 10}});
  ASSERT_TRUE(Now(c) && Now(d));
  EXPECT_NE(Now(c)->members[0], Now(d)->members[0]);
  EXPECT_EQ(scheduler_->running(), 2);
}

TEST_F(SchedulerTest, ALongJobWaitsForEnoughWorkers) {
  Start(3);
  auto small = Enter("x", {{1, 0.5, 10}});
  // Two workers now would take 60 s; three in half a second would take 40 s.
  auto large = Enter("x", {{1, 120, 10}, {2, 60, 10}, {3, 40, 10}});
  EXPECT_FALSE(Now(large).has_value());
  {
    auto fits = Enter("y", {{1, 0.3, 10}});
    EXPECT_TRUE(Now(fits).has_value());
    auto longer = Enter("x", {{1, 200, 10}});
    EXPECT_FALSE(Now(longer).has_value());
  }
  { const Scheduler::Place gone = std::move(small); }
  ASSERT_TRUE(Now(large).has_value());
  EXPECT_EQ(Now(large)->members.size(), 3u);
}

TEST_F(SchedulerTest, AShortJobRunsBesideALongOne) {
  Start(1);
  auto large = Enter("x", {{1, 3600, kGiB / 2}});
  ASSERT_TRUE(Now(large).has_value());
  auto beside = Enter("y", {{1, 0.1, kGiB / 4}});
  ASSERT_TRUE(Now(beside).has_value());
  EXPECT_TRUE(Now(beside)->express());
  EXPECT_EQ(scheduler_->busy_workers(), 1) << "two jobs of one worker";
  auto second = Enter("y", {{1, 0.1, kGiB / 8}});
  EXPECT_FALSE(Now(second).has_value());  // the lane has a job
  { const Scheduler::Place gone = std::move(beside); }
  EXPECT_TRUE(Now(second).has_value());
  { const Scheduler::Place gone = std::move(second); }
  auto too_large = Enter("y", {{1, 0.1, kGiB * 3 / 4}});
  EXPECT_FALSE(Now(too_large).has_value());  // the long job's memory leaves no room
  auto too_long = Enter("y", {{1, 2.0, 10}});
  EXPECT_FALSE(Now(too_long).has_value());
}

TEST_F(SchedulerTest, ShortJobsRunBesideEachOtherOnLanesOfTheirOwn) {
  live_ = {MakeMember(0, kGiB, 4)};
  Start(0);
  std::vector<Scheduler::Place> places;
  std::vector<int> lanes;
  for (int i = 0; i < 4; ++i) {
    places.push_back(Enter("x", {{1, 0.1, 10}}));
    ASSERT_TRUE(Now(places.back()).has_value()) << i;
    lanes.push_back(Now(places.back())->lane);
  }
  EXPECT_EQ(lanes, (std::vector{0, 1, 2, 3}));
  auto fifth = Enter("x", {{1, 0.1, 10}});
  EXPECT_FALSE(Now(fifth).has_value());
  { const Scheduler::Place gone = std::move(places[2]); }
  ASSERT_TRUE(Now(fifth).has_value());
  EXPECT_EQ(Now(fifth)->lane, 2) << "the freed lane";
}

TEST_F(SchedulerTest, BesideALongJobOneLaneIsUsed) {
  live_ = {MakeMember(0, kGiB, 4)};
  Start(0);
  std::optional<Scheduler::Place> large(Enter("x", {{1, 3600, 10}}));
  ASSERT_TRUE(Now(*large).has_value());
  auto beside = Enter("y", {{1, 0.1, 10}});
  ASSERT_TRUE(Now(beside).has_value());
  auto second = Enter("y", {{1, 0.1, 10}}), third = Enter("y", {{1, 0.1, 10}});
  EXPECT_FALSE(Now(second).has_value());
  large.reset();
  EXPECT_TRUE(Now(second).has_value() && Now(third).has_value());
}

TEST_F(SchedulerTest, AJobThatIsLongOnOneThreadHasNoLane) {
  live_ = {MakeMember(0, kGiB, 8)};
  Start(0);
  auto large = Enter("x", {{1, 3600, 10}});
  auto wide = Enter("y", {{.workers = 1, .seconds = 0.1, .bytes = 10, .compute_seconds = 0.09}});
  EXPECT_FALSE(Now(wide).has_value());
  auto narrow = Enter("y", {{.workers = 1, .seconds = 0.1, .bytes = 10, .compute_seconds = 0.02}});
  EXPECT_TRUE(Now(narrow).has_value());
}

TEST_F(SchedulerTest, LanesOfTheWorkerWithFewestJobsAreUsedFirst) {
  live_ = {MakeMember(0, kGiB, 4), MakeMember(1, kGiB, 4)};
  Start(0);
  std::vector<Scheduler::Place> places;
  std::map<std::shared_ptr<const Member>, int> jobs;
  for (int i = 0; i < 6; ++i) {
    places.push_back(Enter("x", {{1, 0.1, 10}}));
    ++jobs[Now(places.back())->members.front()];
  }
  EXPECT_EQ(jobs[live_[0]], 3);
  EXPECT_EQ(jobs[live_[1]], 3);
}

TEST_F(SchedulerTest, TheMemoryOfWorkersDecides) {
  live_ = {MakeMember(0, 100), MakeMember(1, 1000), MakeMember(2, 1000)};
  Start(0);
  auto job = Enter("x", {{1, 9, 2000}, {2, 5, 500}, {4, 3, 250}});
  ASSERT_TRUE(Now(job).has_value());
  EXPECT_EQ(Now(job)->members, (Members{live_[1], live_[2]}));
}

// A worker that failed a job gets no job for a while; a job that fits it alone waits.
TEST_F(SchedulerTest, WorkersThatBackOffGetNoJobs) {
  Start(2);
  live_[0]->backs_off_until = (Clock::now() + std::chrono::hours(1)).time_since_epoch();
  auto job = Enter("x", {{1, 10, 10}, {2, 6, 10}});
  ASSERT_TRUE(Now(job).has_value());
  EXPECT_EQ(Now(job)->members, (Members{live_[1]}));
  auto waiting = Enter("x", {{1, 0.1, kGiB}});
  EXPECT_FALSE(Now(waiting).has_value()) << "nor an express lane";
  live_[0]->backs_off_until = Clock::now().time_since_epoch();
  scheduler_->Changed();
  ASSERT_TRUE(Now(waiting).has_value());
  EXPECT_EQ(Now(waiting)->members, (Members{live_[0]}));
}

TEST_F(SchedulerTest, AJobThatLostWorkersGoesFirstAndWithoutThem) {
  Start(2);
  auto job = Enter("x", {{2, 10, 10}});
  auto waiting = Enter("y", {{1, 1, 10}});
  ASSERT_TRUE(Now(job).has_value());
  const auto lost = Now(job)->members[0];
  EXPECT_FALSE(Now(waiting).has_value());
  job.WaitAgain({{1, 20, 10}}, {lost});
  ASSERT_TRUE(Now(job).has_value());
  EXPECT_EQ(Now(job)->members, (Members{live_[1]}));
  EXPECT_EQ(Now(waiting)->members, (Members{lost}));  // another job may have it
}

TEST_F(SchedulerTest, AJobThatCannotContinueReturnsItsWorkers) {
  Start(2);
  auto job = Enter("x", {{2, 10, 10}});
  auto waiting = Enter("x", {{1, 1, 10}});
  ASSERT_TRUE(Now(job).has_value());
  EXPECT_FALSE(Now(waiting).has_value());
  job.GiveBack();
  EXPECT_TRUE(Now(waiting).has_value());
  EXPECT_FALSE(Now(job).has_value());
  { const Scheduler::Place gone = std::move(waiting); }
  EXPECT_FALSE(Now(job).has_value());  // not before it asks
  job.WaitAgain({{2, 10, 10}}, {});
  EXPECT_TRUE(Now(job).has_value());
}

TEST_F(SchedulerTest, ShortJobsLeaveMemoryToTheOneThatWaitsForIt) {
  Start(1);
  auto first = Enter("z", {{1, 0.2, kGiB / 2}});  // the next turn is y's
  ASSERT_TRUE(Now(first).has_value());
  auto large = Enter("y", {{1, 3600, kGiB * 3 / 4}});
  EXPECT_FALSE(Now(large).has_value());
  // It would not end before the large job may start, and its memory would be in the way.
  auto late = Enter("z", {{1, 0.24, kGiB / 2}});
  EXPECT_FALSE(Now(late).has_value());
  auto beside = Enter("z", {{1, 0.24, kGiB / 8}});
  EXPECT_TRUE(Now(beside).has_value());
  { const Scheduler::Place gone = std::move(first); }
  EXPECT_TRUE(Now(large).has_value());
}

TEST_F(SchedulerTest, NewMembersAreUsedAndDepartedOnesAreNot) {
  Start(1);
  auto job = Enter("x", {{2, 10, 10}});
  EXPECT_FALSE(Now(job).has_value());
  live_.push_back(MakeMember(7));
  scheduler_->Changed();
  EXPECT_TRUE(Now(job).has_value());
  live_.clear();
  scheduler_->Changed();
  job.WaitAgain({{1, 10, 10}}, {});
  EXPECT_FALSE(Now(job).has_value());
}

TEST_F(SchedulerTest, AFullQueueIsShared) {
  Start(1, 4);
  auto running = Enter("x", {{1, 10, 10}});
  std::vector<Scheduler::Place> waiting;
  waiting.reserve(4);
  for (int i = 0; i < 4; ++i) waiting.push_back(Enter("x", {{1, 10, 10}}));
  EXPECT_EQ(wire::ReasonOf(scheduler_->CheckRoom("x")), "QUEUE_FULL");
  EXPECT_TRUE(scheduler_->CheckRoom("y").ok());
  auto first = Enter("y", {{1, 10, 10}}), second = Enter("y", {{1, 10, 10}});
  EXPECT_EQ(scheduler_->waiting(), 4);
  for (const int out : {3, 2}) {
    const auto grant = waiting[out].Await(JobStop(), Deadline::min(), kSilent);
    EXPECT_EQ(wire::ReasonOf(grant.status()), "QUEUE_FULL") << out;
  }
  // Each caller has two: a third would be more than the other caller has.
  for (const char* caller : {"x", "y"}) {
    EXPECT_EQ(wire::ReasonOf(scheduler_->CheckRoom(caller)), "QUEUE_FULL");
    EXPECT_EQ(wire::ReasonOf(scheduler_->Enter(Request(caller, {{1, 10, 10}})).status()),
              "QUEUE_FULL");
  }
  { const Scheduler::Place gone = std::move(running); }
  EXPECT_TRUE(Now(first).has_value()) << "y has had no turn yet";
}

// The end of a back-off makes no event.
TEST_F(SchedulerTest, RoomOfAWorkerAfterItsBackOffIsFound) {
  Start(1, 0);
  scheduler_->Changed();
  live_[0]->backs_off_until = (Clock::now() + std::chrono::milliseconds(300)).time_since_epoch();
  EXPECT_EQ(wire::ReasonOf(scheduler_->CheckRoom("x")), "QUEUE_FULL") << "while it backs off";
  const JobStop stop;
  EXPECT_TRUE(scheduler_->AwaitRoom("x", stop, Clock::now() + std::chrono::seconds(60)).ok());
  EXPECT_TRUE(scheduler_->CheckRoom("x").ok());
  EXPECT_LT(Clock::now().time_since_epoch(),
            live_[0]->backs_off_until.load() + std::chrono::seconds(30));
}

TEST_F(SchedulerTest, RoomIsWaitedFor) {
  Start(1, 0);
  std::optional<Scheduler::Place> running(Enter("x", {{1, 10, 10}}));
  JobStop stop;
  EXPECT_TRUE(scheduler_->AwaitRoom("x", stop, Deadline::min()).ok())
      << "Enter reports the full queue";
  auto room = std::async(std::launch::async,
                         [&] { return scheduler_->AwaitRoom("x", stop, Deadline::max()); });
  EXPECT_EQ(room.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  running.reset();
  EXPECT_TRUE(room.get().ok());
  EXPECT_TRUE(scheduler_->CheckRoom("x").ok());

  running.emplace(Enter("x", {{1, 10, 10}}));
  room = std::async(std::launch::async,
                    [&] { return scheduler_->AwaitRoom("x", stop, Deadline::max()); });
  stop.Request(absl::CancelledError("enough"));
  EXPECT_TRUE(absl::IsCancelled(room.get()));
  const JobStop none;
  room = std::async(std::launch::async,
                    [&] { return scheduler_->AwaitRoom("x", none, Deadline::max()); });
  scheduler_->Close(absl::UnavailableError("the service is stopping"));
  EXPECT_TRUE(room.get().ok());
}

TEST_F(SchedulerTest, AWaitingJobGetsItsPlaceInTheQueue) {
  Start(1);
  auto running = Enter("x", {{1, 10, 10}});
  auto before = Enter("x", {{1, 10, 10}});
  auto place = Enter("x", {{1, 10, 10}});
  JobStop stop;
  std::vector<int> places;
  const auto tell = [&](int jobs) {
    places.push_back(jobs);
    stop.Request(absl::CancelledError("enough"));
  };
  EXPECT_EQ(wire::ReasonOf(place.Await(stop, Clock::now(), tell).status()), "QUEUE_TIMEOUT");
  EXPECT_EQ(places, std::vector<int>()) << "it has waited for a moment only";
  EXPECT_TRUE(
      absl::IsCancelled(place.Await(stop, Clock::now() + milliseconds(20'000), tell).status()));
  EXPECT_EQ(places, std::vector<int>{1});
}

TEST_F(SchedulerTest, WaitsEnd) {
  Start(1);
  auto running = Enter("x", {{1, 10, 10}});
  {
    auto place = Enter("x", {{1, 10, 10}});
    const JobStop stop;
    EXPECT_EQ(wire::ReasonOf(place.Await(stop, Clock::now() + milliseconds(20), kSilent).status()),
              "QUEUE_TIMEOUT");
  }
  {
    auto place = Enter("x", {{1, 10, 10}});
    JobStop stop;
    std::jthread canceller([&] {
      std::this_thread::sleep_for(milliseconds(20));
      stop.Request(absl::CancelledError("client"));
    });
    EXPECT_TRUE(absl::IsCancelled(
        place.Await(stop, Clock::now() + milliseconds(10'000), kSilent).status()));
  }
  auto place = Enter("x", {{1, 10, 10}});
  std::jthread closer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    scheduler_->Close(absl::UnavailableError("stopping"));
  });
  const JobStop stop;
  EXPECT_TRUE(absl::IsUnavailable(
      place.Await(stop, Clock::now() + milliseconds(10'000), kSilent).status()));
  EXPECT_TRUE(absl::IsUnavailable(scheduler_->Enter(Request("x", {{1, 1, 1}})).status()));
}

TEST_F(SchedulerTest, ManyThreadsGetWorkersOneAtATime) {
  Start(3);
  std::mutex mutex;
  std::vector<std::shared_ptr<const Member>> used;
  std::vector<std::jthread> threads;
  threads.reserve(24);
  for (int i = 0; i < 24; ++i) {
    threads.emplace_back([&, i] {
      const int workers = 1 + i % 3;
      auto place = scheduler_->Enter(Request(absl::StrCat(i % 4), {{workers, 0.5, 10}}));
      ASSERT_TRUE(place.ok());
      const JobStop stop;
      const auto grant = place->Await(stop, Clock::now() + milliseconds(20'000), kSilent);
      ASSERT_TRUE(grant.ok()) << grant.status();
      ASSERT_EQ(grant->members.size(), static_cast<size_t>(workers));
      {
        const std::lock_guard lock(mutex);
        for (const auto& member : grant->members) {
          EXPECT_EQ(std::count(used.begin(), used.end(), member), 0);
          used.push_back(member);
        }
      }
      std::this_thread::sleep_for(milliseconds(2));
      const std::lock_guard lock(mutex);
      for (const auto& member : grant->members) {
        used.erase(std::find(used.begin(), used.end(), member));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(scheduler_->running() + scheduler_->waiting(), 0);
}

}  // namespace
}  // namespace hilbert_ring::server
