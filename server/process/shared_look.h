// A look at what may take long, or never answer, as a file system over the network: one at a time,
// for all who ask.
//
//   SharedLook<absl::Status> look([&] { return root.Reach().status(); }, {.patience = seconds(2)},
//                                 SystemTime());
//   const std::optional<absl::Status> found = look.Ask();
//
// Who asks while somebody looks gets what that one sees. When a look takes too long, those who wait
// for it get nothing, and until it ends others get nothing at once: one thread stays with it, not
// those of all callers.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

struct SharedLookTimes {
  Clock::duration patience;  // with a look, of those who wait for another's
  Clock::duration kept{0};   // for which what was seen is given out again
};

// Thread-safe.
template <typename Seen>
class SharedLook {
 public:
  // kept_of: how long at most what was seen is kept; may be empty. time: outlives it.
  SharedLook(std::function<Seen()> look, const SharedLookTimes& times, const TimeSource& time,
             std::function<Clock::duration(const Seen&)> kept_of = nullptr)
      : look_(std::move(look)), times_(times), time_(time), kept_of_(std::move(kept_of)) {}

  // `cancelled`, which may be empty, is asked while another's look is waited for.
  std::optional<Seen> Ask(const std::function<bool()>& cancelled = nullptr) {
    MutexLock lock(mutex_);
    if (done_ > 0 && time_.Now() - seen_at_ < kept_) return seen_;
    if (begun_ > done_) return AwaitOther(lock, cancelled);
    ++begun_;
    since_ = time_.Now();
    lock.unlock();
    Seen seen = look_();
    lock.lock();
    ++done_;
    seen_ = seen;
    seen_at_ = time_.Now();
    kept_ = kept_of_ ? std::min(times_.kept, kept_of_(seen)) : times_.kept;
    ended_.notify_all();
    return seen;
  }

 private:
  static constexpr std::chrono::milliseconds kPoll{50};  // until a cancellation is seen

  std::optional<Seen> AwaitOther(MutexLock& lock, const std::function<bool()>& cancelled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t mine = begun_;
    const Clock::time_point due = since_ + times_.patience;
    while (done_ < mine) {
      if (time_.Now() >= due || (cancelled && cancelled())) return std::nullopt;
      const Clock::time_point until = cancelled ? std::min(due, time_.Now() + kPoll) : due;
      time_.WaitUntil(ended_, lock, std::stop_token(), until,
                      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_ >= mine; });
    }
    return seen_;
  }

  const std::function<Seen()> look_;
  const SharedLookTimes times_;
  const TimeSource& time_;
  const std::function<Clock::duration(const Seen&)> kept_of_;
  Mutex mutex_;
  std::condition_variable_any ended_;
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;  // looks
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;   // begun_, or one less
  Clock::time_point since_ ABSL_GUARDED_BY(mutex_), seen_at_ ABSL_GUARDED_BY(mutex_);
  Clock::duration kept_ ABSL_GUARDED_BY(mutex_){0};   // of what was seen
  std::optional<Seen> seen_ ABSL_GUARDED_BY(mutex_);  // by the last look that ended
};

}  // namespace hilbert_ring::server
