// Threads that are kept for the next task: a small job is done in the time that starting its
// threads takes.
//
//   KeptThreads threads;
//   KeptThreads::Task reader = threads.Start([&] { Read(); });
//   reader.Join();
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe. Of tasks there may be as many at once as the system has threads: who starts them
// bounds them.
class KeptThreads {
 private:
  struct End;

 public:
  struct Limits {
    size_t most_idle = 64;                     // further ones end with their task
    std::chrono::milliseconds idle_for{2000};  // then a thread ends
  };

  // Empty, or what a thread has been given to do. To be joined, or let go of: the task goes on.
  class Task {
   public:
    Task() = default;
    bool joinable() const { return end_ != nullptr; }
    // Until it has been done; the task is then empty. What it was made of is destroyed by then.
    void Join();

   private:
    friend class KeptThreads;
    explicit Task(std::shared_ptr<End> end) : end_(std::move(end)) {}
    std::shared_ptr<End> end_;
  };

  KeptThreads() : KeptThreads(Limits()) {}
  explicit KeptThreads(const Limits& limits) : limits_(limits) {}

  // Waits for all tasks.
  ~KeptThreads();

  // On a thread that has nothing to do, or a new one. The process ends where that cannot be
  // started.
  Task Start(std::function<void()> body) noexcept;

  int count() const;  // threads, with and without a task

 private:
  struct Work {
    std::function<void()> body;  // null: none
    std::shared_ptr<End> end;
  };
  struct Thread {
    ConditionVariable changed;
    Work next;  // guarded by the pool's mutex
  };

  void Serve(Work work);
  bool AwaitNext(const std::shared_ptr<Thread>& thread, Work& next);

  const Limits limits_;
  mutable Mutex mutex_;
  ConditionVariable ended_;
  // The one that was last at work is the next: its memory is the most likely to be near.
  std::vector<std::shared_ptr<Thread>> idle_ ABSL_GUARDED_BY(mutex_);
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hilbert_ring::server
