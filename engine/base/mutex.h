// A mutex whose use clang checks: code reads and writes guarded data only while it holds the mutex.
//
//   class Counter {
//    public:
//     void Add() {
//       const MutexLock lock(mutex_);
//       ++count_;
//       changed_.notify_all();
//     }
//     void AwaitTen() {
//       MutexLock lock(mutex_);
//       changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ >= 10;
//       });
//     }
//
//    private:
//     Mutex mutex_;
//     ConditionVariable changed_;
//     int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
//   };
//
// `./dev check` runs clang's thread safety analysis over all files. The thread sanitizer
// understands the standard library's mutex. std::condition_variable_any takes a MutexLock too.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"

namespace hilbert_ring {

class ABSL_LOCKABLE Mutex {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class MutexLock;

  std::mutex mutex_;
};

// A function that takes this by reference names the mutex: ABSL_EXCLUSIVE_LOCKS_REQUIRED.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

// std::condition_variable for a MutexLock.
class ConditionVariable {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  template <typename... Predicate>
  void wait(MutexLock& lock, Predicate... predicate) {
    changed_.wait(lock.native(), std::move(predicate)...);
  }
  template <typename Time, typename... Predicate>
  auto wait_until(MutexLock& lock, const Time& time, Predicate... predicate) {
    return changed_.wait_until(lock.native(), time, std::move(predicate)...);
  }
  template <typename Duration, typename... Predicate>
  auto wait_for(MutexLock& lock, const Duration& duration, Predicate... predicate) {
    return changed_.wait_for(lock.native(), duration, std::move(predicate)...);
  }

 private:
  std::condition_variable changed_;
};

}  // namespace hilbert_ring
