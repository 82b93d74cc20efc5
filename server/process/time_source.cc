#include "server/process/time_source.h"

namespace hilbert_ring::server {
namespace {

class System : public TimeSource {
 public:
  Clock::time_point Now() const override { return Clock::now(); }

  bool WaitUntil(std::condition_variable_any& changed, MutexLock& lock, const std::stop_token& stop,
                 Deadline deadline, absl::FunctionRef<bool()> done) const override {
    return changed.wait_until(lock.native(), stop, deadline, done);
  }
};

}  // namespace

void TimeSource::AwaitStop(const std::stop_token& stop, Deadline deadline) const {
  Mutex mutex;
  std::condition_variable_any changed;
  MutexLock lock(mutex);
  WaitUntil(changed, lock, stop, deadline, [] { return false; });
}

const TimeSource& SystemTime() {
  static const System system;
  return system;
}

}  // namespace hilbert_ring::server
