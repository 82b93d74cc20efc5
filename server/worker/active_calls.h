// The Run calls that are open at a worker: how many, their end when the coordinator is lost, how
// long those that were cancelled took to end, and how others failed.
#pragma once

#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "grpcpp/server_context.h"
#include "hilbert_ring/v1/worker.pb.h"

namespace hilbert_ring::server {

// Thread-safe.
class ActiveCalls {
 public:
  // A call's place; gone with it. The context outlives it.
  class Entry {
   public:
    Entry(ActiveCalls& calls, grpc::ServerContext& context) : calls_(calls) {
      const MutexLock lock(calls_.mutex_);
      calls_.contexts_.push_front(&context);
      place_ = calls_.contexts_.begin();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      const MutexLock lock(calls_.mutex_);
      calls_.contexts_.erase(place_);
    }

   private:
    ActiveCalls& calls_;
    std::list<grpc::ServerContext*>::iterator place_;
  };

  int count() const {
    const MutexLock lock(mutex_);
    return static_cast<int>(contexts_.size());
  }

  // Seconds from a cancellation to the memory's release; a few are kept until they are taken.
  void NoteCancelled(double seconds) {
    const MutexLock lock(mutex_);
    if (cancel_seconds_.size() < kMostKept) cancel_seconds_.push_back(seconds);
  }
  std::vector<double> TakeCancelled() {
    const MutexLock lock(mutex_);
    return std::exchange(cancel_seconds_, {});
  }

  // A failure that the coordinator must hear of beside the call's stream; a few are kept until they
  // are taken.
  void NoteFailed(v1::RunFailure failure) {
    const MutexLock lock(mutex_);
    if (failures_.size() < kMostKept) failures_.push_back(std::move(failure));
    if (on_failure_) on_failure_();
  }
  std::vector<v1::RunFailure> TakeFailures() {
    const MutexLock lock(mutex_);
    return std::exchange(failures_, {});
  }

  // Called with each failure, by any thread; it must not call back. Null: nobody is.
  void SetOnFailure(std::function<void()> on_failure) {
    const MutexLock lock(mutex_);
    on_failure_ = std::move(on_failure);
  }

  // They end, and free what they hold, within a tile.
  void CancelAll() {
    const MutexLock lock(mutex_);
    for (grpc::ServerContext* context : contexts_) context->TryCancel();
  }

 private:
  static constexpr size_t kMostKept = 1024;

  mutable Mutex mutex_;
  std::vector<double> cancel_seconds_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RunFailure> failures_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_failure_ ABSL_GUARDED_BY(mutex_);
  std::list<grpc::ServerContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
