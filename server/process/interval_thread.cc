#include "server/process/interval_thread.h"

#include <utility>

namespace hilbert_ring::server {

IntervalThread::IntervalThread(std::chrono::milliseconds interval,
                               std::function<void(const std::stop_token&)> look)
    : interval_(interval),
      look_(std::move(look)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void IntervalThread::Wake() {
  const MutexLock lock(mutex_);
  now_ = true;
  wake_.notify_all();
}

void IntervalThread::Run(const std::stop_token& stop) {
  while (true) {
    {
      MutexLock lock(mutex_);
      wake_.wait_for(lock, stop, interval_,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return now_; });
      now_ = false;
    }
    if (stop.stop_requested()) return;
    look_(stop);
  }
}

}  // namespace hilbert_ring::server
