#include "server/process/last_resort.h"

#include <spdlog/spdlog.h>

#include <cstdlib>

namespace hilbert_ring::server {

LastResort::LastResort() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void LastResort::EndIn(std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  due_ = Clock::now() + limit;
  due_is_set_.notify_all();
}

void LastResort::Run(const std::stop_token& stop) {
  {
    MutexLock lock(mutex_);
    due_is_set_.wait(lock, stop,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return due_.has_value(); });
    if (!due_.has_value()) return;
    const Deadline due = *due_;
    due_is_set_.wait_until(lock, stop, due, [] { return false; });
  }
  if (stop.stop_requested()) return;
  spdlog::critical(
      "stopping: a thread does not end, as where a file system does not answer; the process ends "
      "without it");
  spdlog::default_logger()->flush();
  std::_Exit(kExitStatus);
}

}  // namespace hilbert_ring::server
