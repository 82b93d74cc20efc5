// A first job over the workers with checked rows; the service is ready after it. It finds faults of
// the network between workers, which a worker's self-test cannot.
//
//   WarmUp warm_up(services, needed, [] { ... });   // called once, after success
//
// The job's retries exclude workers that fail it, as for every job. It runs again until enough
// workers share it.
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
  // needed: workers. The job appears in no list, quota or counter. `passed` gets a thread.
  WarmUp(const JobServices& services, int needed, std::function<void()> passed);
  ~WarmUp() { Stop(); }

  // Ends the job and starts no others. Must precede the end of the services.
  void Stop();

  // The last try's error; empty: no error. Thread-safe, also during Stop.
  std::string Why() const;

 private:
  void Run();
  absl::Status RunJob(const Members& live);

  CoordinatorSettings settings_;
  Metrics metrics_;
  JobTable jobs_;
  Quotas quotas_;
  JobMemory copies_;            // for checked rows, whatever --copy-memory is
  const JobServices services_;  // with the members above in place of the service's
  const int needed_;
  const std::function<void()> passed_;
  int64_t tries_ = 0;  // in job ids
  JobStop stop_;
  mutable Mutex mutex_;
  std::string why_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
