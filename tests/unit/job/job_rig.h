// The core of a coordinator without its processes: jobs of fake clients on fake workers, by a time
// that the test moves.
//
//   JobRig rig({.workers = 2});
//   rig.worker(0).At(Moment::kRowsDone, Break());
//   auto client = rig.Send();
//   EXPECT_TRUE(rig.Await(*client).ok());
//   EXPECT_EQ(client->report().retries(), 1);
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/order/order_cache.h"
#include "grpcpp/server.h"
#include "server/job/job_services.h"
#include "tests/support/manual_time.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/job/fake_client.h"
#include "tests/unit/job/fake_worker.h"
#include "tests/unit/job/phase_log.h"

namespace hilbert_ring::testing {

// The rows of such a job, 3 MiB, exceed what arrives before the workers are ready.
inline constexpr int64_t kManyTokens = 8192;

struct JobRigOptions {
  int workers = 2;
  bool local = true;  // the workers share memory with the coordinator
  server::CoordinatorSettings settings;
  std::string models = "";  // the coordinator's folder of them
  // Each worker's registration; the rig sets address, version and transport.
  v1::Heartbeat beat = {};
};

class JobRig {
 public:
  explicit JobRig(const JobRigOptions& options = {});
  ~JobRig();

  static JobSpec Spec(int64_t tokens = 64);

  std::unique_ptr<FakeClient> Open(const JobSpec& spec = Spec(), FakeClientOptions options = {});
  std::unique_ptr<FakeClient> Send(const JobSpec& spec = Spec(), FakeClientOptions options = {});

  // Returns the call's status. Waits of up to a second pass, those of a retry; other limits are
  // hours unless a test sets them.
  absl::Status Await(FakeClient& client);
  bool Until(absl::FunctionRef<bool()> done);

  // No time passes. Returns false after a minute of the machine's time.
  bool AwaitPhase(server::JobPhase phase);
  int jobs_in(server::JobPhase phase) const;

  // The next job with this transition ("sending -> checking") waits there until Release.
  void HoldAt(const std::string& transition) { log_.HoldAt(transition); }
  bool AwaitHeld();
  void Release() { log_.Release(); }

  FakeWorker& worker(int index) { return *workers_[index]; }
  void Leave(int index);
  void Drain(int index);
  void Join(int index);
  void TellFailure(int index, uint64_t run, const absl::Status& status, const std::string& reason);
  void Look() { runs_.Look(time_.Now()); }  // as with each heartbeat
  v1::ClusterWorker Describe(int index);
  int failures(int index) const;    // of the worker
  bool backs_off(int index) const;  // since its last job failed, whatever time has passed

  // Phases of the job in order without the first: "validating", "sizing", ...
  std::vector<std::string> Phases(const std::string& job_id = "job") const {
    return log_.phases(job_id);
  }
  // Lines logged as errors, such as an unknown transition.
  std::vector<std::string> errors() const { return log_.lines(spdlog::level::err); }
  std::vector<std::string> lines() const { return log_.lines(); }  // of the log

  server::JobServices services();

  ManualTime& time() { return time_; }
  server::JobTable& jobs() { return jobs_; }

 private:
  class Service;

  PhaseLog log_;
  ManualTime time_;
  const server::CoordinatorSettings settings_;
  const v1::Heartbeat beat_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  server::Metrics metrics_;
  server::JobTable jobs_;
  server::Quotas quotas_;
  server::Rings rings_;
  server::OpenRuns runs_;
  OrderCache orders_;
  server::ModelCatalog models_;
  server::SharedMemoryPool shards_;
  server::KeptThreads threads_;
  server::JobMemory copies_, order_memory_;
  server::PlanGate plans_;
  server::Scheduler scheduler_;
  server::ComputeRate rate_;
  mutable std::mutex failures_mutex_;
  std::map<std::string, int> failures_;  // by address; guarded by failures_mutex_
  server::Membership membership_;
  server::Suspects suspects_;
  std::vector<std::shared_ptr<const server::Member>> members_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::AttentionService::Stub> stub_;
};

}  // namespace hilbert_ring::testing
