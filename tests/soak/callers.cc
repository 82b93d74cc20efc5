#include "tests/soak/callers.h"

#include <utility>

namespace hilbert_ring::testing {

Callers::Callers(int callers, uint64_t seed, std::function<void(std::mt19937_64&)> work)
    : work_(std::move(work)) {
  for (int i = 0; i < callers; ++i) {
    threads_.emplace_back([this, seed, i] { CallOn(seed + static_cast<uint64_t>(i)); });
  }
}

Callers::~Callers() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Callers::CallOn(uint64_t seed) {
  std::mt19937_64 random(seed);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !paused_ || stopped_; });
      if (stopped_) return;
      ++working_;
    }
    work_(random);
    const std::lock_guard lock(mutex_);
    --working_;
    changed_.notify_all();
  }
}

void Callers::Pause() {
  std::unique_lock lock(mutex_);
  paused_ = true;
  changed_.wait(lock, [this] { return working_ == 0; });
}

void Callers::Resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  changed_.notify_all();
}

}  // namespace hilbert_ring::testing
