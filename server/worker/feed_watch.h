// Ends runs of which the coordinator says nothing for too long: one watch of all runs, for a run's
// own threads may all wait for the coordinator.
//
//   const FeedWatch::Entry watched(watch, [&] { ... });   // called about five times a second
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {

// Thread-safe. Must outlive the entries.
class FeedWatch {
 public:
  // A run's place; once it is gone `look` is not called any more, and no call is under way.
  class Entry {
   public:
    // look: does not block.
    Entry(FeedWatch& watch, std::function<void()> look) : watch_(watch) {
      const MutexLock lock(watch_.mutex_);
      watch_.looks_.push_front(std::move(look));
      place_ = watch_.looks_.begin();
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

  void Look() {
    const MutexLock lock(mutex_);
    for (const auto& look : looks_) look();
  }

  Mutex mutex_;
  std::list<std::function<void()>> looks_ ABSL_GUARDED_BY(mutex_);
  // Last: it uses all of the above.
  IntervalThread watch_{kInterval, [this](const std::stop_token&) { Look(); }};
};

}  // namespace hilbert_ring::server
