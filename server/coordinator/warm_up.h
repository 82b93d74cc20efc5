// A first job over all workers, rows of which are computed again: until it has ended well the
// service is not ready. It passes through the ring and the kernels, and finds what a heartbeat does
// not say: a network between workers that lets nothing through, a processor that errs.
//
//   WarmUp warm_up(services, [] { ... });   // called once, when it has
//   warm_up.Begin(needed);                  // tried again until it ends well, or Stop
//
// Who fails it, or has a caller's job, holds the others up no longer than warm_up_trial.h says.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/access/callers.h"
#include "server/access/quotas.h"
#include "server/cluster/membership.h"
#include "server/coordinator/warm_up_trial.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "server/metrics/metrics.h"
#include "server/process/settings.h"
#include "server/schedule/scheduler.h"

namespace hilbert_ring::server {

class WarmUp {
 public:
  // The job is in no list of jobs and no quota, and the counters of jobs leave it out; its turn and
  // its ring are the service's own. `passed` is called by a thread of its own.
  WarmUp(const JobServices& services, std::function<void()> passed);
  ~WarmUp();

  // So many workers must pass, of those that are there; the next try does not wait any more.
  // Returns at once.
  void Begin(int needed);

  // Ends the job that runs, and begins no others. Once, before the services are gone.
  void Stop();

  // Workers that failed three times, with address and reason, a line each. Thread-safe, also while
  // it stops; it waits for no file and no other process.
  std::string Failures() const { return trial_.Failures(); }

 private:
  struct Server;  // in this process, which no port leads to

  void Run(const std::stop_token& stop);
  // On these workers alone, which no other job has meanwhile.
  WarmUpTrial::Outcome RunOn(const WarmUpTrial::Probe& probe, const std::stop_token& stop);
  absl::StatusOr<Members> AwaitTurn(Scheduler::Place& place, const WarmUpTrial::Probe& probe,
                                    const std::stop_token& stop) const;
  absl::Status AwaitRested(const WarmUpTrial::Probe& probe, const std::stop_token& stop) const;
  absl::Status RunNow(const Members& workers, const std::stop_token& stop);
  absl::Status CheckThere(const Members& workers, size_t least) const;
  absl::Status CheckMemory(const JobSpec& spec, const Members& workers) const;
  Members Chosen() const;
  void Choose(Members workers);

  CoordinatorSettings settings_;
  Metrics metrics_;
  JobTable jobs_;
  Quotas quotas_;
  Callers callers_{nullptr};     // asks for no token: no port leads to the job's server
  JobMemory copies_;             // so that rows can be checked whatever --copy-memory is
  Scheduler& shared_scheduler_;  // where it takes its turn, as all jobs do
  mutable Mutex chosen_mutex_;   // after the scheduler's own
  Members chosen_ ABSL_GUARDED_BY(chosen_mutex_);  // for the job that runs
  Scheduler scheduler_;                            // gives it these
  JobServices services_;                           // with these in place of the service's own
  const std::function<void()> passed_;
  // Made with the process: later there may be no threads for one. Gone once the job has ended well.
  std::unique_ptr<Server> server_;
  int64_t jobs_begun_ = 0;  // each has an id of its own
  WarmUpTrial trial_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  int needed_ ABSL_GUARDED_BY(mutex_) = 0;     // workers; 0: not begun
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;  // how often
  std::jthread thread_;                        // last: it uses all of the above
};

}  // namespace hilbert_ring::server
