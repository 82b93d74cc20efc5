// The runs that are open, by number, for news of them that comes beside their streams: a stream
// whose outputs the client does not read brings nothing that lies behind them.
//
//   OpenRuns::Place place = runs.Enter([](const std::string& worker, const v1::RunFailed&) { ...
//   }); open.set_run(place.number());
//   ...
//   runs.Tell(worker, failure);   // by whoever hears it
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/base/random_bits.h"
#include "hilbert_ring/v1/worker.pb.h"

namespace hilbert_ring::server {

// Thread-safe. Must outlive the places.
class OpenRuns {
 public:
  using Failed = std::function<void(const std::string& worker, const v1::RunFailed& failed)>;

 private:
  struct Run {
    explicit Run(Failed told) : failed(std::move(told)) {}
    Mutex mutex;
    Failed failed ABSL_GUARDED_BY(mutex);  // null once the run has ended
  };

 public:
  // Gone with it: `failed` is not called any more, and no call is under way.
  class Place {
   public:
    Place(OpenRuns& runs, uint64_t number) : runs_(runs), number_(number) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() { runs_.Leave(number_); }
    uint64_t number() const { return number_; }

   private:
    OpenRuns& runs_;
    const uint64_t number_;
  };

  // failed: called by any thread, with the address of the worker that says so.
  std::unique_ptr<Place> Enter(Failed failed) {
    auto run = std::make_shared<Run>(std::move(failed));
    const MutexLock lock(mutex_);
    runs_.emplace(++last_, std::move(run));
    return std::make_unique<Place>(*this, last_);
  }

  // Of a run that has ended: nothing happens.
  void Tell(const std::string& worker, const v1::RunFailure& failure) {
    const std::shared_ptr<Run> run = Find(failure.run());
    if (run == nullptr) return;
    const MutexLock lock(run->mutex);
    if (run->failed) run->failed(worker, failure.failed());
  }

 private:
  std::shared_ptr<Run> Find(uint64_t number) {
    const MutexLock lock(mutex_);
    const auto found = runs_.find(number);
    return found == runs_.end() ? nullptr : found->second;
  }

  void Leave(uint64_t number) {
    const std::shared_ptr<Run> run = Find(number);
    {
      const MutexLock lock(run->mutex);
      run->failed = nullptr;
    }
    const MutexLock lock(mutex_);
    runs_.erase(number);
  }

  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Run>> runs_ ABSL_GUARDED_BY(mutex_);
  // A worker may still speak of runs of a coordinator before this one.
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = DrawBits() << 32;
};

}  // namespace hilbert_ring::server
