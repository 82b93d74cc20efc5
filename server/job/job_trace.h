// Spans of time for the report of a job with want_trace.
#pragma once

#include <vector>

#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_course.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Outputs on their way, by rank; gaps of at most 1 ms are closed. Thread-safe.
class SendSpans {
 public:
  SendSpans(int workers, Clock::time_point job_opened) : opened_(job_opened), of_ranks_(workers) {}

  void Add(int rank, Clock::time_point begin, Clock::time_point end);

  // Moves the workers' own spans from the opening of their run to that of the job.
  void AddTo(std::vector<v1::WorkerReport>& workers, Clock::time_point run_opened) const;

 private:
  const Clock::time_point opened_;
  mutable Mutex mutex_;
  std::vector<std::vector<v1::Span>> of_ranks_ ABSL_GUARDED_BY(mutex_);
};

void AddPhases(const JobCourse& course, v1::Report& report);

}  // namespace hilbert_ring::server
