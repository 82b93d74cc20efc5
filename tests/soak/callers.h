// Threads that call the service, and that all pause together now and then, so that its processes
// can be looked at while idle.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace hilbert_ring::testing {

class Callers {
 public:
  // Each calls `work` again and again, with a source of chance of its own.
  Callers(int callers, uint64_t seed, std::function<void(std::mt19937_64&)> work);

  // Lets them end what they do, and joins them.
  ~Callers();

  // Returns when none is at work.
  void Pause();
  void Resume();

 private:
  void CallOn(uint64_t seed);

  const std::function<void(std::mt19937_64&)> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool paused_ = false, stopped_ = false;
  int working_ = 0;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace hilbert_ring::testing
