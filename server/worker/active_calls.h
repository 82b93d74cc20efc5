// The open Run calls of a worker: their number, their end without messages of their coordinator,
// and news of cancelled and failed calls.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "grpcpp/server_context.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/deadline.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {

class ActiveCalls {  // thread-safe
 public:
  // A call's place until it is destroyed. The context outlives it.
  class Entry {
   public:
    Entry(ActiveCalls& calls, grpc::ServerContext& context) : calls_(calls), context_(context) {
      const MutexLock lock(calls_.mutex_);
      calls_.entries_.insert(this);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      const MutexLock lock(calls_.mutex_);
      calls_.entries_.erase(this);
    }

    // Cancels the call soon after `due`, unless this is called again by then.
    void ExpectMessageBy(Deadline due) { message_due_ = due; }
    bool starved() const { return starved_; }

   private:
    friend class ActiveCalls;
    ActiveCalls& calls_;
    grpc::ServerContext& context_;
    std::atomic<Deadline> message_due_ = Deadline::max();
    std::atomic<bool> starved_ = false;
  };

  int count() const {
    const MutexLock lock(mutex_);
    return static_cast<int>(entries_.size());
  }

  // seconds: from a cancellation to the memory's release.
  void NoteCancelled(double seconds) {
    const MutexLock lock(mutex_);
    news_.add_cancel_seconds(seconds);
  }

  void NoteFailed(v1::RunFailure failure) {
    const MutexLock lock(mutex_);
    *news_.add_failures() = std::move(failure);
    if (on_failure_) on_failure_();
  }

  // Returns the news since the last call for a heartbeat.
  v1::Heartbeat TakeNews() {
    const MutexLock lock(mutex_);
    return std::exchange(news_, {});
  }

  // Called by any thread, with the lock: it must not call back. Null: no call.
  void SetOnFailure(std::function<void()> on_failure) {
    const MutexLock lock(mutex_);
    on_failure_ = std::move(on_failure);
  }

  void CancelAll() {
    const MutexLock lock(mutex_);
    for (Entry* entry : entries_) entry->context_.TryCancel();
  }

 private:
  static constexpr std::chrono::milliseconds kWatchInterval{200};

  // A watch of all runs, because a run's own threads may all wait for the coordinator.
  void CancelStarved() {
    const MutexLock lock(mutex_);
    for (Entry* entry : entries_) {
      if (Clock::now() <= entry->message_due_.load() || entry->starved_.exchange(true)) continue;
      entry->context_.TryCancel();
    }
  }

  mutable Mutex mutex_;
  v1::Heartbeat news_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_failure_ ABSL_GUARDED_BY(mutex_);
  std::set<Entry*> entries_ ABSL_GUARDED_BY(mutex_);
  IntervalThread watch_{kWatchInterval,
                        [this](const std::stop_token&) { CancelStarved(); }};  // last
};

}  // namespace hilbert_ring::server
