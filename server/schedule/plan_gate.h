// Limits how many plans are made at once: a plan can take seconds of a processor and hundreds of
// MiB. The next place goes to the waiting caller with the fewest places; among equals, to the
// caller whose last turn is longest ago.
//
//   auto turn = gate.Enter(caller, gone);            // empty: too many are being made
//   auto turn = gate.Await(caller, stop, patience);  // or waits for its turn
//   if (PlansFast(spec, workers)) ...                // needs no turn
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/spec/job_spec.h"
#include "server/process/job_stop.h"

namespace hilbert_ring::server {

// Returns whether a plan for up to `workers` takes about a millisecond at most.
bool PlansFast(const JobSpec& spec, int workers);

// Thread-safe.
class PlanGate {
 private:
  struct Caller;
  using Callers = std::map<std::string, Caller>;

 public:
  struct Waits {    // of Enter
    int most = 64;  // at once, one for each caller
    std::chrono::milliseconds patience{10'000};
  };

  explicit PlanGate(int most) : PlanGate(most, Waits()) {}
  PlanGate(int most, const Waits& waits) : most_(most), waits_(waits) {}

  // Gives a place back. The gate must outlive it.
  class End {
   public:
    End() = default;
    explicit End(std::string caller) : caller_(std::move(caller)) {}
    void operator()(PlanGate* gate) const { gate->Leave(caller_); }

   private:
    std::string caller_;
  };
  using Turn = std::unique_ptr<PlanGate, End>;

  // caller: a token's name, or a host. Waits for a turn until `gone` returns true, or for the
  // patience. Returns empty at once if all places are taken and the caller has a place or waits.
  Turn Enter(const std::string& caller, const std::function<bool()>& gone);

  // Returns the stop's reason if it comes first, QUEUE_TIMEOUT after the patience.
  absl::StatusOr<Turn> Await(const std::string& caller, const JobStop& stop,
                             std::chrono::milliseconds patience);

  int most() const { return most_; }
  int waiting() const;

 private:
  struct Waiter {
    bool called = false;  // has a place
  };
  struct Caller {
    int inside = 0;
    std::list<Waiter*> waiting;  // in the order of arrival
    int64_t last_turn = 0;       // number of turns_; 0: never
  };

  Turn TakePlace(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(const std::string& caller);
  void CallNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Turn Wait(MutexLock& lock, const std::string& caller, std::chrono::milliseconds patience,
            const std::stop_token& stop, const std::function<bool()>& gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int most_;
  const Waits waits_;
  mutable Mutex mutex_;
  std::condition_variable_any called_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;    // in Enter
  int64_t turns_ ABSL_GUARDED_BY(mutex_) = 0;  // the last
  Callers callers_ ABSL_GUARDED_BY(mutex_);    // that have places or wait
};

}  // namespace hilbert_ring::server
