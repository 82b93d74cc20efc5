#include "engine/base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"

namespace hilbert_ring {
namespace {

constexpr std::chrono::seconds kLong{60};

class Counter {
 public:
  void Add(int times) {
    for (int i = 0; i < times; ++i) {
      const MutexLock lock(mutex_);
      const int seen = count_;
      std::this_thread::yield();
      count_ = seen + 1;
      changed_.notify_all();
    }
  }
  bool AwaitCount(int count, std::chrono::nanoseconds limit) {
    MutexLock lock(mutex_);
    return changed_.wait_for(
        lock, limit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ >= count; });
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(ConditionVariable, WaitsUntilItIsSo) {
  Counter counter;
  std::jthread adder([&] { counter.Add(10); });
  EXPECT_TRUE(counter.AwaitCount(10, kLong));
}

// The standard library's, for waits that a token stops.
TEST(ConditionVariable, OfAnyLockTakesAMutexLock) {
  Mutex mutex;
  std::condition_variable_any changed;
  std::stop_source source;
  std::jthread stopper([&] { source.request_stop(); });
  MutexLock lock(mutex);
  EXPECT_FALSE(changed.wait_for(lock, source.get_token(), kLong, [] { return false; }));
  EXPECT_TRUE(source.stop_requested());
}

}  // namespace
}  // namespace hilbert_ring
