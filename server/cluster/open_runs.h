// The open runs by number. Heartbeats bring news of them because a run's own stream is blocked
// while the client does not read its outputs.
//
//   auto place = runs.Enter({.failed = ..., .look = ...});
//   open.set_run(place->number());
//   ...
//   runs.Report(worker, failure);
//   runs.Look(now);               // with each heartbeat
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
  struct Listener {  // called by any thread
    std::function<void(const std::string& worker, const v1::RunFailed& failed)> failed;
    // Checks the run while its own thread waits for a worker. Must not block.
    std::function<void()> look;
  };

 private:
  struct Run {
    explicit Run(Listener listener)
        : failed(std::move(listener.failed)), look(std::move(listener.look)) {}
    // Null once the run has ended. Two mutexes, because `failed` may take a while and Look is
    // called by threads of heartbeats.
    Mutex reporting, looking;
    std::function<void(const std::string&, const v1::RunFailed&)> failed ABSL_GUARDED_BY(reporting);
    std::function<void()> look ABSL_GUARDED_BY(looking);
  };

 public:
  // After its destructor the listener is not called, and no call is under way.
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

  void Report(const std::string& worker, const v1::RunFailure& failure) {
    const std::shared_ptr<Run> run = Find(failure.run());
    if (run == nullptr) return;
    const MutexLock lock(run->reporting);
    if (run->failed) run->failed(worker, failure.failed());
  }

  // Calls every `look`, at most once in kLookInterval.
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
      const MutexLock lock(run->reporting);
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
  // Drawn, because a worker may still report runs of an earlier coordinator.
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = DrawBits() << 32;
};

}  // namespace hilbert_ring::server
