// The worker process: device, service, HTTP, registration, shutdown.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/auth_tokens.h"
#include "server/access/callers.h"
#include "server/files/mark_watch.h"
#include "server/models/model_scan.h"
#include "server/process/certificate_watch.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/http_endpoint.h"
#include "server/process/ready_file.h"
#include "server/process/settings.h"
#include "server/worker/model_store.h"
#include "server/worker/registration.h"
#include "server/worker/worker_device.h"
#include "server/worker/worker_service.h"
#include "server/worker/worker_state.h"

namespace hilbert_ring::server {

class Worker {
 public:
  // Listens and registers. Errors: an address that others cannot reach or this host cannot bind.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(WorkerSettings settings,
                                                       WorkerDevices devices,
                                                       absl::Status self_test);
  ~Worker();

  void Run();  // waits for SIGTERM or SIGINT, blocked in all threads, then stops

  // Takes no more jobs, waits the exit timeout for running ones (less after another stop signal),
  // leaves the coordinator, and stops the server.
  void Stop();

 private:
  Worker(const WorkerSettings& settings, WorkerDevices devices, absl::Status self_test,
         std::unique_ptr<ReadyFile> ready_file, std::unique_ptr<AuthTokens> tokens,
         int64_t memory_limit);

  absl::Status Listen();
  void Register(const std::string& join_token, Calling calling);
  v1::Heartbeat Beat();
  void SetReady(bool ready);
  void NoteRegistered(bool registered);
  void AwaitDrained();
  HttpReply ServeMetrics();

  const WorkerSettings settings_;  // http_host is set
  const WorkerDevices devices_;
  const absl::Status self_test_;
  const std::unique_ptr<ReadyFile> ready_file_;
  CertificateWatch certificates_;
  Callers readers_;  // of /metrics
  ModelStore models_;
  WorkerState state_;
  WorkerService service_;
  std::atomic<bool> registered_ = false;
  std::atomic<bool> draining_ = false;
  GrpcEndpoint grpc_;
  std::unique_ptr<HttpEndpoint> http_;
  std::optional<ModelScan> scan_;  // empty: no encoders
  std::optional<MarkWatch> data_mark_;
  std::optional<Registration> registration_;  // last: uses the members above
};

}  // namespace hilbert_ring::server
