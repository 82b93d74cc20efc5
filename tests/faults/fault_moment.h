// When, in the life of a job, a fault happens.
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
  kBefore,     // the job has not begun
  kAnyTime,    // a part of the job's undisturbed seconds after its beginning
  kAdmission,  // when it is admitted
  kReceive,    // when a part of its rows is sent
  kCompute,    // a part of its seconds after the last row was sent
  kSend,       // when a part of the output has come
};

const char* PhaseName(Phase phase);

struct Moment {
  Phase phase = Phase::kAnyTime;
  double part = 0;  // 0 to 1
};

Moment DrawMoment(std::mt19937_64& random);

class FaultMoment {
 public:
  // Calls `fault` once: at once, or in another thread.
  FaultMoment(const Moment& moment, double job_seconds, std::function<void()> fault);
  ~FaultMoment();

  std::function<void(const client::AttendProgress&)> progress();

  // No fault happens from here on. Whether it has.
  bool Settle();

 private:
  void Note(const client::AttendProgress& progress);
  void FireAfter(double seconds);
  void Fire();

  const Moment moment_;
  const double job_seconds_;
  const std::function<void()> fault_;
  std::mutex mutex_;
  bool fired_ = false;    // guarded by mutex_
  bool settled_ = false;  // guarded by mutex_
  std::jthread timer_;    // started once
};

}  // namespace hilbert_ring::testing
