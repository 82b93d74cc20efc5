#include "tests/support/manual_time.h"

#include <thread>

namespace hilbert_ring::testing {
namespace {

using server::Clock;
using server::Deadline;

constexpr auto kLook = std::chrono::milliseconds(1);
constexpr auto kMachineLimit = std::chrono::minutes(1);

}  // namespace

bool ManualTime::WaitUntil(std::condition_variable_any& changed, MutexLock& lock,
                           const std::stop_token& stop, Deadline deadline,
                           absl::FunctionRef<bool()> done) const {
  if (done() || stop.stop_requested() || Now() >= deadline) return done();
  std::multiset<Deadline>::iterator place;
  {
    const std::lock_guard waits(mutex_);
    place = waited_for_.insert(deadline);
  }
  while (!done() && !stop.stop_requested() && Now() < deadline) {
    changed.wait_for(lock.native(), stop, kLook, done);
  }
  const std::lock_guard waits(mutex_);
  waited_for_.erase(place);
  return done();
}

void ManualTime::Advance(Clock::duration by) { now_ = now_.load() + by; }

bool ManualTime::RunUntil(absl::FunctionRef<bool()> done, Clock::duration shortly) {
  return Eventually([&] {
    if (done()) return true;
    const std::lock_guard waits(mutex_);
    const auto next = waited_for_.upper_bound(Now());
    if (next != waited_for_.end() && *next <= Now() + shortly) now_ = *next;
    return false;
  });
}

bool ManualTime::AwaitWait(Clock::duration least, Clock::duration most) const {
  return Eventually([&] {
    const std::lock_guard waits(mutex_);
    const auto first = waited_for_.lower_bound(Now() + least);
    return first != waited_for_.end() && *first <= Now() + most;
  });
}

bool Eventually(absl::FunctionRef<bool()> done) {
  const Clock::time_point limit = Clock::now() + kMachineLimit;
  while (!done()) {
    if (Clock::now() >= limit) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

}  // namespace hilbert_ring::testing
