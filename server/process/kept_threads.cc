#include "server/process/kept_threads.h"

#include <pthread.h>

#include <thread>

namespace hilbert_ring::server {

struct KeptThreads::End {
  Mutex mutex;
  ConditionVariable changed;
  bool came ABSL_GUARDED_BY(mutex) = false;
};

void KeptThreads::Task::Join() {
  const std::shared_ptr<End> end = std::exchange(end_, nullptr);
  MutexLock lock(end->mutex);
  end->changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(end->mutex) { return end->came; });
}

KeptThreads::~KeptThreads() {
  MutexLock lock(mutex_);
  ending_ = true;
  for (const auto& thread : idle_) thread->changed.notify_one();
  ended_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return threads_ == 0; });
}

KeptThreads::Task KeptThreads::Start(std::function<void()> body) noexcept {
  const auto end = std::make_shared<End>();
  Work work{.body = std::move(body), .end = end};
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      const std::shared_ptr<Thread> idle = std::move(idle_.back());
      idle_.pop_back();
      idle->next = std::move(work);
      lock.unlock();
      idle->changed.notify_one();
      return Task(end);
    }
    ++threads_;
  }
  std::thread([this, work = std::move(work)]() mutable { Serve(std::move(work)); }).detach();
  return Task(end);
}

int KeptThreads::count() const {
  const MutexLock lock(mutex_);
  return threads_;
}

void KeptThreads::Serve(Work work) {
  pthread_setname_np(pthread_self(), "kept");  // for ps -L
  const auto thread = std::make_shared<Thread>();
  do {
    work.body();
    work.body = nullptr;
  } while (AwaitNext(thread, work));
  const MutexLock lock(mutex_);
  --threads_;
  ended_.notify_all();
}

// Reports the end of `next` and waits for other work. False if this thread must end.
bool KeptThreads::AwaitNext(const std::shared_ptr<Thread>& thread, Work& next) {
  bool kept = false;
  {
    const MutexLock lock(mutex_);
    kept = !ending_ && idle_.size() < limits_.most_idle;
    if (kept) idle_.push_back(thread);
  }
  // After idle_ has the thread, so that the waiting caller's next Start gets it.
  {
    const MutexLock lock(next.end->mutex);
    next.end->came = true;
    next.end->changed.notify_all();
  }
  next.end.reset();
  if (!kept) return false;
  MutexLock lock(mutex_);
  thread->changed.wait_for(lock, limits_.idle_for, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return thread->next.body != nullptr || ending_;
  });
  if (thread->next.body != nullptr) {
    next = std::exchange(thread->next, Work());
    return true;
  }
  std::erase(idle_, thread);
  return false;
}

}  // namespace hilbert_ring::server
