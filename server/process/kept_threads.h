// Threads kept for the next task, because starting a small job's threads takes as long as the job.
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

// Thread-safe. The caller bounds the number of tasks.
class KeptThreads {
 private:
  struct End;

 public:
  struct Limits {
    size_t most_idle = 64;                     // more threads end with their tasks
    std::chrono::milliseconds idle_for{2000};  // until a thread ends
  };

  // May be destroyed without Join: the work goes on.
  class Task {
   public:
    Task() = default;
    bool joinable() const { return end_ != nullptr; }
    // Waits for the work, whose function is destroyed by then. The task is empty afterwards.
    void Join();

   private:
    friend class KeptThreads;
    explicit Task(std::shared_ptr<End> end) : end_(std::move(end)) {}
    std::shared_ptr<End> end_;
  };

  KeptThreads() : KeptThreads(Limits()) {}
  explicit KeptThreads(const Limits& limits) : limits_(limits) {}

  ~KeptThreads();  // waits for all tasks

  // Runs `body` on an idle or new thread. The process ends if no thread can be started.
  Task Start(std::function<void()> body) noexcept;

  int count() const;  // of threads, idle ones too

 private:
  struct Work {
    std::function<void()> body;  // null: no work
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
  // The last is taken first: its memory is most likely cached.
  std::vector<std::shared_ptr<Thread>> idle_ ABSL_GUARDED_BY(mutex_);
  int threads_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hilbert_ring::server
