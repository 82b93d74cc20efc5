// How far a job is, for whoever asks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "server/process/deadline.h"

namespace hilbert_ring::server {

enum class JobState { kQueued, kReceiving, kComputing, kSending };

// Written by the job's call, read by any thread.
class JobProgress {
 public:
  explicit JobProgress(int64_t tokens) : tokens_(tokens) {}

  // A job may go back, to receive rows again.
  void Begin(JobState state, int workers) {
    workers_ = workers;
    fraction_ = 0;
    state_ = state;
  }

  // Of the state's work. What is said of another state than the job's is not kept: compute begins
  // while rows still come, and outputs leave while others are computed.
  void Advance(JobState state, double fraction) {
    if (state_ == state) fraction_ = std::clamp(fraction, 0.0, 1.0);
  }

  JobState state() const { return state_; }
  int64_t tokens() const { return tokens_; }
  int workers() const { return workers_; }
  double fraction() const { return fraction_; }
  Clock::time_point opened() const { return opened_; }

 private:
  const int64_t tokens_;
  const Clock::time_point opened_ = Clock::now();
  std::atomic<JobState> state_ = JobState::kQueued;
  std::atomic<int> workers_ = 0;
  std::atomic<double> fraction_ = 0;
};

}  // namespace hilbert_ring::server
