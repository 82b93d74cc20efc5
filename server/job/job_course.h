// The phase and progress of a job: ListJobs, metrics and the log show them.
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

class JobCourse {  // written by the job's thread, read by any thread once the job has its id
 public:
  explicit JobCourse(const TimeSource& time = SystemTime()) : time_(time), opened_(time.Now()) {}

  // SetJob and ShowIn: before another thread knows the job.
  void SetJob(std::string job_id, int64_t tokens, bool stream = false) {
    job_id_ = std::move(job_id);
    tokens_ = tokens;
    stream_ = stream;
  }

  // Mirrors an epoch in its stream's course, which outlives it.
  void ShowIn(JobCourse& stream) { shown_in_ = &stream; }

  void Show(JobPhase phase, int workers, double fraction) {
    workers_ = workers;
    fraction_ = fraction;
    phase_ = phase;
  }
  void AddEpoch(int64_t tokens) {
    tokens_ += tokens;
    ++epochs_;
  }

  // Logs the move. Returns false for a move that job_phase.h excludes, and logs an error.
  bool Enter(JobPhase phase, int workers = 0);

  // fraction: of the phase's work, 0 to 1. Dropped if the job is in another phase: workers'
  // phases overlap.
  void Advance(JobPhase phase, double fraction) {
    if (phase_ != phase) return;
    fraction_ = std::clamp(fraction, 0.0, 1.0);
    if (shown_in_ != nullptr) shown_in_->Show(phase, workers_, fraction_);
  }

  bool is_epoch() const { return shown_in_ != nullptr; }
  JobPhase phase() const { return phase_; }
  int64_t tokens() const { return tokens_; }  // of a stream: of finished epochs
  bool stream() const { return stream_; }
  int64_t epochs() const { return epochs_; }  // of a stream: finished
  int workers() const { return workers_; }
  double fraction() const { return fraction_; }
  Clock::time_point opened() const { return opened_; }

  struct Passage {  // the first kMostPassages; only the job's thread may ask
    JobPhase phase;
    Clock::time_point at;
  };
  const std::vector<Passage>& passages() const { return passages_; }

 private:
  static constexpr size_t kMostPassages = 256;

  std::string job_id_ = "?";
  bool stream_ = false;
  JobCourse* shown_in_ = nullptr;
  std::atomic<int64_t> tokens_ = 0;
  std::atomic<int64_t> epochs_ = 0;
  const TimeSource& time_;
  const Clock::time_point opened_;
  std::vector<Passage> passages_;
  std::atomic<JobPhase> phase_ = JobPhase::kOpen;
  std::atomic<int> workers_ = 0;
  std::atomic<double> fraction_ = 0;
};

}  // namespace hilbert_ring::server
