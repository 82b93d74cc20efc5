// A first job over the workers, rows of which are computed again: the service is not ready before
// it has ended well. It finds what a worker's self-test does not: a network between workers that
// lets nothing through.
//
//   WarmUp warm_up(services, needed, [] { ... });   // called once, when it has
//
// The job goes the way of all jobs, whose retries leave out the workers that fail them. It is tried
// again until as many workers as are needed share it.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "server/access/quotas.h"
#include "server/job/job_services.h"
#include "server/job/job_table.h"
#include "server/metrics/metrics.h"
#include "server/process/job_stop.h"
#include "server/process/settings.h"
#include "server/shard/job_memory.h"

namespace hilbert_ring::server {

class WarmUp {
 public:
  // needed: workers. The job is in no list of jobs, no quota and no counter. `passed` is called by
  // a thread of its own.
  WarmUp(const JobServices& services, int needed, std::function<void()> passed);
  ~WarmUp() { Stop(); }

  // Ends the job that runs, and begins no others. Before the services are gone.
  void Stop();

  // Why the last try failed; empty: it did not. Thread-safe, also while it stops.
  std::string Why() const;

 private:
  void Run();
  absl::Status RunJob(const Members& live);
  void SetWhy(std::string why);

  CoordinatorSettings settings_;
  Metrics metrics_;
  JobTable jobs_;
  Quotas quotas_;
  JobMemory copies_;            // so that rows can be checked whatever --copy-memory is
  const JobServices services_;  // with these in place of the service's own
  const int needed_;
  const std::function<void()> passed_;
  int64_t tries_ = 0;  // each has a job id of its own
  JobStop stop_;
  mutable Mutex mutex_;
  std::string why_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
