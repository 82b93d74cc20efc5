// Threads of calls, counted and bounded.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace hilbert_ring::server {

// Thread-safe. Waits for its threads when it is destroyed.
class CallThreads {
 public:
  explicit CallThreads(int max_threads) : max_threads_(max_threads) {}
  ~CallThreads() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return threads_ == 0; });
  }

  // Runs `call` on a thread of its own; false when there are too many already.
  bool Start(std::function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      if (threads_ >= max_threads_) return false;
      ++threads_;
    }
    std::thread([this, call = std::move(call)]() mutable {
      call();
      call = nullptr;
      const std::lock_guard lock(mutex_);
      --threads_;
      changed_.notify_all();
    }).detach();
    return true;
  }

  // Whether no thread was left within the time.
  bool AwaitIdle(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return threads_ == 0; });
  }

 private:
  const int max_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int threads_ = 0;  // guarded by mutex_
};

}  // namespace hilbert_ring::server
