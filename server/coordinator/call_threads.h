// Bounds the threads of calls.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "server/process/kept_threads.h"
#include "wire/status.h"

namespace hilbert_ring::server {

// Thread-safe. `threads` must outlive it. The destructor waits for the calls.
class CallThreads {
 public:
  CallThreads(int max_threads, KeptThreads& threads) : max_threads_(max_threads), kept_(threads) {}
  ~CallThreads() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return threads_ == 0; });
  }

  // Runs `call` on a thread of its own. TOO_MANY_CALLS beyond the limit.
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
    kept_.Start([this, call = std::move(call)]() mutable {
      call();
      call = nullptr;
      const MutexLock lock(mutex_);
      --threads_;
      changed_.notify_all();
    });
    return absl::OkStatus();
  }

  // Returns false if a call still runs after the limit.
  bool AwaitIdle(std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    return changed_.wait_for(
        lock, limit, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return threads_ == 0; });
  }

 private:
  const int max_threads_;
  KeptThreads& kept_;
  Mutex mutex_;
  ConditionVariable changed_;
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring::server
