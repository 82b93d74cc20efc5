// The coordinator process: services, HTTP, local workers, readiness and shutdown.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "engine/base/mutex.h"
#include "server/access/callers.h"
#include "server/access/quotas.h"
#include "server/cluster/membership.h"
#include "server/cluster/membership_service.h"
#include "server/cluster/rings.h"
#include "server/cluster/worker_processes.h"
#include "server/coordinator/attention_service.h"
#include "server/coordinator/encoder_service.h"
#include "server/coordinator/job_calls.h"
#include "server/coordinator/warm_up.h"
#include "server/files/data_root.h"
#include "server/job/job_table.h"
#include "server/metrics/metrics.h"
#include "server/process/certificate_watch.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/http_endpoint.h"
#include "server/process/kept_threads.h"
#include "server/process/listening_sockets.h"
#include "server/process/ready_file.h"
#include "server/process/settings.h"
#include "server/schedule/scheduler.h"

namespace hilbert_ring::server {

MetricLabels LabelsOfCoordinator();

// A file in memory with the token, which ends with the descriptor. This user's processes may read
// it at PathOfMemory.
absl::StatusOr<Descriptor> TokenInMemory(const std::string& token);
std::string PathOfMemory(const Descriptor& memory);

class Coordinator {
 public:
  // Listens and starts the local workers. UNAVAILABLE if a port is taken.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorSettings& settings);
  ~Coordinator();

  // Refuses new jobs, waits for running jobs until the exit timeout or another stop signal, then
  // stops the workers and the servers.
  void Stop();

 private:
  Coordinator(const CoordinatorSettings& settings, std::unique_ptr<ReadyFile> ready_file,
              std::string join_token, std::unique_ptr<AuthTokens> auth_tokens,
              std::unique_ptr<DataRoot> data_root, Calling calling);

  absl::Status Listen();
  absl::Status StartWorkers();
  void Quarantine(const Member& worker);
  std::set<int> PortsOfMembers() const;
  WorkerProcesses* Spawned();  // null without spawned workers
  std::map<std::string, HttpEndpoint::Handler> HttpRoutes();
  HttpReply Ready();
  static void SetHealth(const GrpcEndpoint& endpoint, const char* service, bool serving);
  CoordinatorFigures Figures();
  HttpReply ServeMetrics();
  HttpReply ServeTargets();
  HttpReply ServeStatusPage(const Caller& caller);
  // Applies a change of the members to readiness, health and the ready file.
  void Refresh();

  const CoordinatorSettings settings_;
  const int expected_workers_;                   // until the service is ready
  const std::string loopback_ = LoopbackHost();  // of spawned workers
  const std::unique_ptr<ReadyFile> ready_file_;
  const std::string join_token_;
  const std::unique_ptr<DataRoot> data_root_;  // null without --data-root
  Descriptor token_file_;                      // of spawned workers
  Metrics metrics_{LabelsOfCoordinator()};
  std::atomic<bool> draining_ = false;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> was_ready_ = false;
  std::atomic<bool> warm_ = false;
  std::atomic<bool> enough_ = false;  // workers
  Mutex refresh_;                     // one Refresh at a time
  CertificateWatch certificates_;
  Callers callers_;
  Quotas quotas_;
  JobTable jobs_;
  Rings rings_;
  OpenRuns runs_;
  OrderCache orders_;
  ModelCatalog models_;
  SharedMemoryPool shards_;
  KeptThreads threads_;  // of jobs
  JobMemory copies_;
  JobMemory order_memory_;
  PlanGate plans_;
  Scheduler scheduler_;
  ComputeRate rate_;
  Membership membership_;
  CallGate membership_gate_;
  MembershipService membership_service_;
  Suspects suspects_{[this](const Member& worker) { Quarantine(worker); }};
  const JobServices services_;
  JobCalls calls_;
  AttentionService attention_service_;
  EncoderService encoder_service_;
  GrpcEndpoint grpc_, membership_grpc_;
  std::unique_ptr<HttpEndpoint> http_;
  std::unique_ptr<WarmUp> warm_up_;  // set before HTTP is served; null: disabled
  Mutex spawned_;                    // held for a moment
  std::unique_ptr<WorkerProcesses> workers_ ABSL_GUARDED_BY(spawned_);  // set once, if at all
};

}  // namespace hilbert_ring::server
