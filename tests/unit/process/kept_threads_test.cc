#include "server/process/kept_threads.h"

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(KeptThreads, ATaskAfterAnotherHasItsThread) {
  KeptThreads threads({.idle_for = std::chrono::hours(1)});
  std::vector<std::thread::id> ids;
  for (int i = 0; i < 100; ++i) {
    KeptThreads::Task task = threads.Start([&] { ids.push_back(std::this_thread::get_id()); });
    EXPECT_TRUE(task.joinable());
    task.Join();
    EXPECT_FALSE(task.joinable());
  }
  EXPECT_EQ(threads.count(), 1);
  EXPECT_EQ(ids, std::vector<std::thread::id>(100, ids.front()));
}

TEST(KeptThreads, TasksAtOnceHaveThreadsOfTheirOwn) {
  KeptThreads threads({.idle_for = std::chrono::hours(1)});
  for (int round = 0; round < 2; ++round) {
    std::latch all(3);
    std::vector<KeptThreads::Task> tasks;
    tasks.reserve(3);
    for (int i = 0; i < 3; ++i) {
      tasks.push_back(threads.Start([&] { all.arrive_and_wait(); }));
    }
    for (KeptThreads::Task& task : tasks) task.Join();
  }
  EXPECT_EQ(threads.count(), 3);
}

TEST(KeptThreads, NoMoreThreadsThanTheLimitAreKept) {
  KeptThreads threads({.most_idle = 1, .idle_for = std::chrono::hours(1)});
  std::latch all(3);
  std::vector<KeptThreads::Task> tasks;
  tasks.reserve(3);
  for (int i = 0; i < 3; ++i) tasks.push_back(threads.Start([&] { all.arrive_and_wait(); }));
  for (KeptThreads::Task& task : tasks) task.Join();
  while (threads.count() > 1) std::this_thread::yield();
  EXPECT_EQ(threads.count(), 1);
}

TEST(KeptThreads, AnIdleThreadEnds) {
  KeptThreads threads({.idle_for = std::chrono::milliseconds(1)});
  threads.Start([] {}).Join();
  while (threads.count() > 0) std::this_thread::yield();
  threads.Start([] {}).Join();
}

TEST(KeptThreads, AJoinedTaskIsDestroyed) {
  KeptThreads threads;
  auto held = std::make_shared<int>();
  threads.Start([held] {}).Join();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(KeptThreads, TheEndWaitsForUnjoinedTasks) {
  std::atomic<bool> done = false;
  {
    KeptThreads threads;
    std::latch begun(1);
    threads.Start([&] {
      begun.count_down();
      std::this_thread::yield();
      done = true;
    });
    begun.wait();
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace hilbert_ring::server
