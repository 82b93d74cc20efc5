// How many plans are made at once: one can take seconds of a processor and hundreds of MiB.
//
//   auto turn = gate.TryEnter();             // empty: too many are being made
//   auto turn = gate.Await(stop);            // or when it is its turn
//   if (PlansFast(spec, workers)) ...        // needs none
#pragma once

#include <condition_variable>
#include <memory>

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
 public:
  explicit PlanGate(int most) : most_(most) {}

  // Ends when it is destroyed, before the gate is.
  struct End {
    void operator()(PlanGate* gate) const { gate->Leave(); }
  };
  using Turn = std::unique_ptr<PlanGate, End>;

  Turn TryEnter();

  // The stop's reason when it comes first. Bounded by the calls that there may be, and by each
  // plan's own bound (engine/plan/plan_size.h).
  absl::StatusOr<Turn> Await(const JobStop& stop);

  int most() const { return most_; }

 private:
  void Leave();

  const int most_;
  Mutex mutex_;
  std::condition_variable_any left_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring::server
