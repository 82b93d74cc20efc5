// Threads of calls, counted and bounded.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "server/process/threads.h"
#include "wire/status.h"

namespace hilbert_ring::server {

// Thread-safe. Waits for its threads when it is destroyed.
class CallThreads {
 public:
  explicit CallThreads(int max_threads, ThreadStarter start = StartThread)
      : max_threads_(max_threads), start_(std::move(start)) {}
  ~CallThreads() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return threads_ == 0; });
  }

  // Runs `call` on a thread of its own. RESOURCE_EXHAUSTED when there are too many already
  // (TOO_MANY_CALLS) or the system has none left (NO_THREADS).
  absl::Status Start(std::function<void()> call) {
    {
      const MutexLock lock(mutex_);
      if (threads_ >= max_threads_) {
        return wire::ErrorOf(
            wire::reason::kTooManyCalls,
            absl::StrCat("too many calls are open: ", threads_, ", the limit is ", max_threads_));
      }
      ++threads_;
    }
    auto thread = start_([this, call = std::move(call)]() mutable {
      call();
      call = nullptr;
      End();
    });
    if (thread.ok()) {
      thread->detach();
    } else {
      End();
    }
    return thread.status();
  }

  // Whether no thread was left within the time.
  bool AwaitIdle(std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    return changed_.wait_for(
        lock, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return threads_ == 0; });
  }

 private:
  void End() {
    const MutexLock lock(mutex_);
    --threads_;
    changed_.notify_all();
  }

  const int max_threads_;
  const ThreadStarter start_;
  Mutex mutex_;
  ConditionVariable changed_;
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring::server
