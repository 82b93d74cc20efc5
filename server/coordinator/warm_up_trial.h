// Which workers pass the warm-up job (warm_up.h). Where a job over all of them fails, a job on each
// worker alone finds who is to blame, and jobs that leave one out find a worker that fails only
// beside others. A worker that is to blame three times in a row is left out as long as enough
// others are there. A worker that has a caller's job is none that fails: it is left aside where
// enough others are free, else the job waits for its turn.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/cluster/membership.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// One thread tries; Failures is thread-safe.
class WarmUpTrial {
 public:
  // A job over these workers and no others.
  struct Probe {
    Members workers;
    size_t least = 0;               // of them are enough, where others have callers' jobs
    std::function<bool()> give_up;  // asked now and then while it waits for its turn
  };
  struct Outcome {
    absl::Status status;
    Members workers;  // that it ran on; none: it did not run, or what ended it is not theirs
  };
  using Job = std::function<Outcome(const Probe& probe, const std::stop_token& stop)>;

  // live: the workers that take jobs.
  WarmUpTrial(std::function<Members()> live, Job job, const TimeSource& time = SystemTime())
      : live_(std::move(live)), job_(std::move(job)), time_(time) {}

  // Over all that are there and free, those aside that failed three times, if `needed` are left. OK
  // once that job has ended well. Where one worker is enough and nobody is to blame, also the third
  // time in a row that the job fails and one on a worker alone ends well: they fail as a ring,
  // which is the membership's to know. Else the error of the last job over all.
  absl::Status Try(size_t needed, const std::stop_token& stop);
  size_t tried() const { return tried_; }  // workers of that job

  // The service is ready. Those that failed three times rest: they get no jobs for a minute.
  void RestFailed();

  // They, with address and reason, a line each. Without those that have left, or have ended a job
  // well since RestFailed.
  std::string Failures() const;

 private:
  struct Failure {
    std::weak_ptr<const Member> worker;  // its connection ends with it
    std::string address;
    int times = 0;  // in a row
    std::string why;
  };
  struct Blamed {
    std::shared_ptr<const Member> worker;
    absl::Status why;
  };
  struct Verdict {
    Members judged;  // the others have callers' jobs, have left, or there was no time for them
    std::vector<Blamed> blamed;
    bool one_passed_alone = false;
  };

  static bool HasLeft(const Failure& failure);
  Members WithoutFailed(const Members& live, size_t needed) const;
  Outcome RunOverAll(const Members& live, const Members& workers, size_t needed,
                     const std::stop_token& stop) const;
  Outcome RunProbe(const Members& workers, const std::stop_token& stop) const;
  bool AreEnoughAlone(const Verdict& verdict, size_t needed);
  Members InOrderOfSearch(Members workers) const;
  Verdict WhoFails(const Outcome& failed, const std::stop_token& stop);
  std::vector<Blamed> WhoFailsBesideOthers(const Outcome& failed,
                                           const std::stop_token& stop) const;
  void Note(const Members& judged, const std::vector<Blamed>& blamed);
  std::vector<Failure> FailedTooOften() const;

  const std::function<Members()> live_;
  const Job job_;
  const TimeSource& time_;
  size_t tried_ = 0;
  size_t searched_ = 0;  // workers, by searches that had no time for all
  int alone_ = 0;  // tries in a row after which one worker alone passed, and nobody was to blame
  mutable Mutex mutex_;
  std::vector<Failure> failures_ ABSL_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> ready_ ABSL_GUARDED_BY(mutex_);  // since when
};

}  // namespace hilbert_ring::server
