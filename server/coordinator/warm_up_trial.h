// Which workers pass the warm-up job (warm_up.h). Where a job over all of them fails, a job on each
// worker alone finds who is to blame, and jobs that leave one out find a worker that fails only
// beside others. A worker that is to blame three times in a row is left out as long as enough
// others are there.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/cluster/membership.h"

namespace hilbert_ring::server {

// One thread tries; Failures is thread-safe.
class WarmUpTrial {
 public:
  // A job over these workers and no others; its error once it is told to stop.
  using Job = std::function<absl::Status(const Members& workers, const std::stop_token& stop)>;

  explicit WarmUpTrial(Job job) : job_(std::move(job)) {}

  // Over all that are there, those aside that failed three times, if `needed` are left. OK once a
  // job over `needed` of them or more has ended well; else the error of the last one.
  absl::Status Try(const Members& live, size_t needed, const std::stop_token& stop);
  size_t tried() const { return tried_; }  // workers of that job

  // Those that failed three times rest: they get no jobs for a minute.
  void RestFailed() const;

  // They, with address and reason, a line each. Without those that have left.
  std::string Failures() const;

 private:
  struct Failure {
    std::shared_ptr<const Member> worker;
    int times = 0;  // in a row
    std::string why;
  };
  struct Blamed {
    std::shared_ptr<const Member> worker;
    absl::Status why;
  };

  Members WithoutFailed(const Members& live, size_t needed) const;
  std::vector<Blamed> WhoFails(const Members& workers, const absl::Status& status,
                               const std::stop_token& stop) const;
  std::vector<Blamed> WhoFailsBesideOthers(const Members& workers, const absl::Status& status,
                                           const std::stop_token& stop) const;
  void Note(const Members& workers, const std::vector<Blamed>& blamed);
  std::vector<Failure> FailedTooOften() const;

  const Job job_;
  size_t tried_ = 0;
  mutable Mutex mutex_;
  std::vector<Failure> failures_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
