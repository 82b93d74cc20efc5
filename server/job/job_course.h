// Where a job is in its course, and how far, for whoever asks: ListJobs, metrics, the log.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/job/job_phase.h"
#include "server/process/deadline.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// Written by the job's call, read by any thread once the job has its id.
class JobCourse {
 public:
  explicit JobCourse(const TimeSource& time = SystemTime()) : time_(time), opened_(time.Now()) {}

  // While nobody else knows of the job.
  void SetJob(std::string job_id, int64_t tokens) {
    job_id_ = std::move(job_id);
    tokens_ = tokens;
  }

  // Moves on, on so many workers, and logs it. False where no way leads there: that is a mistake of
  // ours, logged as an error, and the job is taken to be there.
  bool Enter(JobPhase phase, int workers = 0);

  // Of the phase's work, 0 to 1. What is said of another phase than the job's is not kept: phases
  // overlap in what workers do.
  void Advance(JobPhase phase, double fraction) {
    if (phase_ == phase) fraction_ = std::clamp(fraction, 0.0, 1.0);
  }

  JobPhase phase() const { return phase_; }
  int64_t tokens() const { return tokens_; }
  int workers() const { return workers_; }  // 0 where it has none
  double fraction() const { return fraction_; }
  Clock::time_point opened() const { return opened_; }

  // When it entered which phase; the first kMostPassages. The job's call alone may ask.
  struct Passage {
    JobPhase phase;
    Clock::time_point at;
  };
  const std::vector<Passage>& passages() const { return passages_; }

 private:
  static constexpr size_t kMostPassages = 256;

  std::string job_id_ = "?";
  int64_t tokens_ = 0;
  const TimeSource& time_;
  const Clock::time_point opened_;
  std::vector<Passage> passages_;
  std::atomic<JobPhase> phase_ = JobPhase::kOpen;
  std::atomic<int> workers_ = 0;
  std::atomic<double> fraction_ = 0;
};

}  // namespace hilbert_ring::server
