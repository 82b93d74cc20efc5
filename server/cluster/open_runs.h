// The runs that are open, by number, for news of them that comes beside their streams: a stream
// whose outputs the client does not read brings nothing that lies behind them.
//
//   auto place = runs.Enter({.failed = ..., .look = ...});
//   open.set_run(place->number());
//   ...
//   runs.Tell(worker, failure);   // by whoever hears it
//   runs.Look(now);               // by whoever hears of workers, again and again
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/base/random_bits.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Thread-safe. Must outlive the places.
class OpenRuns {
 public:
  // Called by any thread.
  struct Listener {
    // The worker at this address says so.
    std::function<void(const std::string& worker, const v1::RunFailed& failed)> failed;
    // It is time to look at what the run's own thread cannot, while it waits for a worker.
    // Waits for nobody.
    std::function<void()> look;
  };

 private:
  struct Run {
    explicit Run(Listener listener)
        : failed(std::move(listener.failed)), look(std::move(listener.look)) {}
    // Null once the run has ended. Whoever is told of a failure may take a while, for which nobody
    // who looks waits: a heartbeat of another worker would be late.
    Mutex telling, looking;
    std::function<void(const std::string&, const v1::RunFailed&)> failed ABSL_GUARDED_BY(telling);
    std::function<void()> look ABSL_GUARDED_BY(looking);
  };

 public:
  // Gone with it: its listener is not called any more, and no call is under way.
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

  std::unique_ptr<Place> Enter(Listener listener) {
    auto run = std::make_shared<Run>(std::move(listener));
    const MutexLock lock(mutex_);
    runs_.emplace(++last_, std::move(run));
    return std::make_unique<Place>(*this, last_);
  }

  // Of a run that has ended: nothing happens.
  void Tell(const std::string& worker, const v1::RunFailure& failure) {
    const std::shared_ptr<Run> run = Find(failure.run());
    if (run == nullptr) return;
    const MutexLock lock(run->telling);
    if (run->failed) run->failed(worker, failure.failed());
  }

  // Every run looks, a few times a second at most.
  void Look(Clock::time_point now) {
    std::vector<std::shared_ptr<Run>> runs;
    {
      const MutexLock lock(mutex_);
      if (now - looked_ < kLookInterval) return;
      looked_ = now;
      for (const auto& [number, run] : runs_) runs.push_back(run);
    }
    for (const std::shared_ptr<Run>& run : runs) {
      const MutexLock lock(run->looking);
      if (run->look) run->look();
    }
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
      const MutexLock lock(run->telling);
      run->failed = nullptr;
    }
    {
      const MutexLock lock(run->looking);
      run->look = nullptr;
    }
    const MutexLock lock(mutex_);
    runs_.erase(number);
  }

  static constexpr std::chrono::milliseconds kLookInterval{250};

  Mutex mutex_;
  Clock::time_point looked_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Run>> runs_ ABSL_GUARDED_BY(mutex_);
  // A worker may still speak of runs of a coordinator before this one.
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = DrawBits() << 32;
};

}  // namespace hilbert_ring::server
