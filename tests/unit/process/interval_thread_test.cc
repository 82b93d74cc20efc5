#include "server/process/interval_thread.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <semaphore>
#include <thread>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr seconds kLimit{20};

TEST(IntervalThread, LooksAtOnceWhenItIsWoken) {
  std::counting_semaphore<> looks(0);
  IntervalThread thread(hours(1), [&](const std::stop_token&) { looks.release(); });
  for (int i = 0; i < 2; ++i) {
    thread.Wake();
    EXPECT_TRUE(looks.try_acquire_for(kLimit)) << i;
  }
}

TEST(IntervalThread, AWakeDuringALookIsNotLost) {
  std::counting_semaphore<> began(0), go_on(0);
  IntervalThread thread(hours(1), [&](const std::stop_token&) {
    began.release();
    go_on.try_acquire_for(kLimit);
  });
  thread.Wake();
  ASSERT_TRUE(began.try_acquire_for(kLimit));
  thread.Wake();
  go_on.release(2);
  EXPECT_TRUE(began.try_acquire_for(kLimit));
}

TEST(IntervalThread, ALookSeesTheEndWhichWaitsForIt) {
  std::binary_semaphore began(0);
  std::atomic<bool> stopped = false;
  std::optional<IntervalThread> thread;
  thread.emplace(hours(1), [&](const std::stop_token& stop) {
    began.release();
    const auto limit = std::chrono::steady_clock::now() + kLimit;
    while (!stop.stop_requested() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    stopped = stop.stop_requested();
  });
  thread->Wake();
  ASSERT_TRUE(began.try_acquire_for(kLimit));
  thread.reset();
  EXPECT_TRUE(stopped);
}

}  // namespace
}  // namespace hilbert_ring::server
