// Ends runs of which the coordinator says nothing for too long, where no thread of the run's own
// can look: one watch for all.
//
//   const FeedWatch::Entry watched(watch, [&] { ... });   // called about five times a second
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe. Must outlive the entries.
class FeedWatch {
 public:
  FeedWatch() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}

  // A run's place; once it is gone `look` is not called any more, and no call is under way.
  class Entry {
   public:
    // look: does not block.
    Entry(FeedWatch& watch, std::function<void()> look) : watch_(watch) {
      const MutexLock lock(watch_.mutex_);
      watch_.looks_.push_front(std::move(look));
      place_ = watch_.looks_.begin();
      if (watch_.sleeps_) watch_.changed_.notify_all();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      const MutexLock lock(watch_.mutex_);
      watch_.looks_.erase(place_);
    }

   private:
    FeedWatch& watch_;
    std::list<std::function<void()>>::iterator place_;
  };

 private:
  static constexpr std::chrono::milliseconds kInterval{200};

  // Runs come and go at each moment, and do not wake it: it sleeps when it has found none.
  void Run(const std::stop_token& stop) {
    MutexLock lock(mutex_);
    while (!stop.stop_requested()) {
      sleeps_ = looks_.empty();
      changed_.wait(lock, stop,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !looks_.empty(); });
      sleeps_ = false;
      changed_.wait_for(lock, stop, kInterval, [] { return false; });
      for (const auto& look : looks_) look();
    }
  }

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::list<std::function<void()>> looks_ ABSL_GUARDED_BY(mutex_);
  bool sleeps_ ABSL_GUARDED_BY(mutex_) = false;  // until there is one
  std::jthread thread_;                          // last: it uses all of the above
};

}  // namespace hilbert_ring::server
