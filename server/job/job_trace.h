// What the report of a job that asked for it says of when things went on.
#pragma once

#include <vector>

#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_course.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// The outputs of each worker on their way to the client: chunks that follow each other within a
// millisecond are one span. Thread-safe.
class SendSpans {
 public:
  explicit SendSpans(int workers) : of_ranks_(workers) {}

  void Add(int rank, Clock::time_point begin, Clock::time_point end);

  // Adds them to the reports, by rank, in seconds since `opened`.
  void AddTo(std::vector<v1::WorkerReport>& workers, Clock::time_point opened) const;

 private:
  struct Sent {
    Clock::time_point begin, end;
  };
  mutable Mutex mutex_;
  std::vector<std::vector<Sent>> of_ranks_ ABSL_GUARDED_BY(mutex_);
};

// Workers' spans count from when their run was opened; the job's from when it was.
void Shift(std::vector<v1::WorkerReport>& workers, double seconds);

// The phases that the job passed through.
void AddPhases(const JobCourse& course, v1::Report& report);

}  // namespace hilbert_ring::server
