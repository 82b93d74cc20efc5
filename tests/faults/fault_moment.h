// The moment of a fault in the life of a job.
//
//   FaultMoment moment(DrawMoment(random), job.seconds, [&] { kill(pid, SIGKILL); });
//   RunJob(address, job, {.progress = moment.progress()});
//   moment.Settle();                           // it has happened, or never will
#pragma once

#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "client/cpp/attend.h"

namespace hilbert_ring::testing {

enum class Phase {
  kBefore,   // before the job begins
  kAnyTime,  // after a part of the job's undisturbed seconds
  kAdmission,
  kReceive,  // after a part of its rows is sent
  kCompute,  // after a part of its seconds since the last row
  kSend,     // after a part of the output has come
};

const char* PhaseName(Phase phase);

struct Moment {
  Phase phase = Phase::kAnyTime;
  double part = 0;  // 0 to 1
};

Moment DrawMoment(std::mt19937_64& random);

class FaultMoment {
 public:
  FaultMoment(const Moment& moment, double job_seconds, std::function<void()> fault);
  ~FaultMoment();

  std::function<void(const client::AttendProgress&)> progress();

  // Prevents a later fault. Returns whether the fault has happened.
  bool Settle();

 private:
  void Note(const client::AttendProgress& progress);
  void FireAfter(double seconds);
  void Fire();

  const Moment moment_;
  const double job_seconds_;
  const std::function<void()> fault_;
  std::mutex mutex_;
  bool fired_ = false;
  bool settled_ = false;
  std::jthread timer_;  // started once
};

}  // namespace hilbert_ring::testing
