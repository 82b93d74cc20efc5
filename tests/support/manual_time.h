// Time that stands still until a test moves it.
//
//   ManualTime time;
//   ... threads under test wait by it ...
//   time.Advance(std::chrono::seconds(30));
//   time.RunUntil([&] { return call_has_ended; }, std::chrono::seconds(1));
//
// A test moves time only to test a clock's behaviour; the machine's speed decides nothing.
#pragma once

#include <atomic>
#include <mutex>
#include <set>

#include "absl/functional/function_ref.h"
#include "server/process/time_source.h"

namespace hilbert_ring::testing {

class ManualTime : public server::TimeSource {
 public:
  server::Clock::time_point Now() const override { return now_.load(); }

  bool WaitUntil(std::condition_variable_any& changed, MutexLock& lock, const std::stop_token& stop,
                 server::Deadline deadline, absl::FunctionRef<bool()> done) const override;

  void Advance(server::Clock::duration by);

  // Moves time to the end of each wait that ends within `shortly`, in order. False after a minute
  // of the machine's time.
  bool RunUntil(absl::FunctionRef<bool()> done, server::Clock::duration shortly);

  // Waits until some thread waits for a point `ahead`, or from `least` to `most` ahead. False after
  // a minute of the machine's time.
  bool AwaitWait(server::Clock::duration ahead) const { return AwaitWait(ahead, ahead); }
  bool AwaitWait(server::Clock::duration least, server::Clock::duration most) const;

 private:
  const server::Clock::time_point began_ = server::Clock::now();
  std::atomic<server::Clock::time_point> now_ = began_;
  mutable std::mutex mutex_;
  mutable std::multiset<server::Deadline> waited_for_;  // guarded by mutex_
};

// Waits a minute at most without moving any clock.
bool Eventually(absl::FunctionRef<bool()> done);

}  // namespace hilbert_ring::testing
