// How many plans are made at once: one can take seconds of a processor and hundreds of MiB. Where
// several callers want one, places go round among them: of those who wait, the caller with the
// fewest places is next, and of these the one whose last turn was before the others'.
//
//   auto turn = gate.Enter(caller, gone);            // empty: too many are being made
//   auto turn = gate.Await(caller, stop, patience);  // or when it is its turn
//   if (PlansFast(spec, workers)) ...                // needs none
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/spec/job_spec.h"
#include "server/process/job_stop.h"

namespace hilbert_ring::server {

// Whether a plan for up to so many workers is made within a millisecond or so.
bool PlansFast(const JobSpec& spec, int workers);

// Thread-safe.
class PlanGate {
 private:
  struct Caller;
  using Callers = std::map<std::string, Caller>;

 public:
  // How calls of Enter wait.
  struct Waits {
    int most = 64;                               // at once, one for each caller
    std::chrono::milliseconds patience{10'000};  // of one
  };

  explicit PlanGate(int most) : PlanGate(most, Waits()) {}
  PlanGate(int most, const Waits& waits) : most_(most), waits_(waits) {}

  // A place; ends when it is destroyed, before the gate is.
  class End {
   public:
    End() = default;
    explicit End(std::string caller) : caller_(std::move(caller)) {}
    void operator()(PlanGate* gate) const { gate->Leave(caller_); }

   private:
    std::string caller_;
  };
  using Turn = std::unique_ptr<PlanGate, End>;

  // caller: a token's name, or a host. Empty when all places are taken and the caller has one of
  // them or waits for one already; else it waits for its turn, until `gone` says that nobody wants
  // it any more, or for the patience.
  Turn Enter(const std::string& caller, const std::function<bool()>& gone);

  // Waits for its turn; the stop's reason when it comes first. QUEUE_TIMEOUT: it took longer than
  // this.
  absl::StatusOr<Turn> Await(const std::string& caller, const JobStop& stop,
                             std::chrono::milliseconds patience);

  int most() const { return most_; }
  int waiting() const;  // for their turn

 private:
  struct Waiter {
    bool called = false;  // it has its place
  };
  struct Caller {
    int inside = 0;
    std::list<Waiter*> waiting;  // the first that came is the first
    int64_t last_turn = 0;       // by turns_; 0: none
  };

  Turn TakePlace(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(const std::string& caller);
  void CallNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // With the place that it was called to, or empty.
  Turn StopWaiting(const std::string& caller, const Waiter& waiter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int most_;
  const Waits waits_;
  mutable Mutex mutex_;
  std::condition_variable_any called_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;    // by Enter
  int64_t turns_ ABSL_GUARDED_BY(mutex_) = 0;  // given so far
  Callers callers_ ABSL_GUARDED_BY(mutex_);    // with places, or who wait
};

}  // namespace hilbert_ring::server
