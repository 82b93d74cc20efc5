#include "server/process/last_resort.h"

#include <spdlog/spdlog.h>

#include <cstdlib>

#include "server/process/stop_signals.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{200};

}  // namespace

LastResort::LastResort(std::chrono::milliseconds unheard)
    : unheard_(unheard), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void LastResort::Started() {
  const MutexLock lock(mutex_);
  started_ = true;
  changed_.notify_all();
}

void LastResort::EndIn(std::chrono::milliseconds limit) {
  const MutexLock lock(mutex_);
  due_ = Clock::now() + limit;
  changed_.notify_all();
}

// Until the process is to end, or the stop.
void LastResort::AwaitDue(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  const auto told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return started_ || due_.has_value();
  };
  Clock::time_point heard = Clock::now();
  while (!changed_.wait_for(lock, stop, kBetweenLooks, told)) {
    if (stop.stop_requested()) return;
    if (!StopSignalIsPending()) heard = Clock::now();
    if (Clock::now() - heard >= unheard_) return;
  }
  changed_.wait(lock, stop,
                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return due_.has_value(); });
  if (due_.has_value()) changed_.wait_until(lock, stop, *due_, [] { return false; });
}

void LastResort::Run(const std::stop_token& stop) {
  AwaitDue(stop);
  if (stop.stop_requested()) return;
  spdlog::critical(
      "stopping: a thread does not end, as where a file system does not answer; the process ends "
      "without it");
  spdlog::default_logger()->flush();
  std::_Exit(kExitStatus);
}

}  // namespace hilbert_ring::server
