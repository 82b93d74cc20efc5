// A coordinator and workers as processes that a test may kill, stop and start again.
//
//   auto cluster = Cluster::Start({.workers = 2});
//   auto stub = (*cluster)->Stub();
//   EXPECT_TRUE((*cluster)->Stop().ok());
//
// All listen on the loopback interface unless the options give them networks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/support/program.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {

enum class WorkerPlace {
  kLocal,     // started by the coordinator, sharing its memory
  kBeside,    // started by the test, sharing the coordinator's memory
  kRemote,    // started by the test without shared memory, as on other hosts
  kUnshared,  // like kRemote, but offered memory, which they refuse, as in other containers
};

const char* PlaceName(WorkerPlace place);

struct ClusterOptions {
  int workers = 2;
  WorkerPlace place = WorkerPlace::kLocal;
  std::vector<std::string> arguments;         // of the coordinator
  std::vector<std::string> worker_arguments;  // of workers that the test starts
  bool spread = true;       // each job uses all workers, so that small jobs use rings
  bool log_files = false;   // logs of level info go to a folder; else warnings go to the test's log
  std::string last_worker;  // another program for the last worker that the test starts
  // Another coordinator's program, beside its hilbert-ring-worker.
  std::string coordinator;
  // Network namespaces and their addresses: the coordinator's, then each worker's that the test
  // starts. Empty: the caller's loopback interface.
  std::vector<std::string> networks, hosts;
};

class Cluster {
 public:
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(const ClusterOptions& options);
  // Stops it, by force if needed. HILBERT_RING_KEEP_LOGS keeps the logs.
  ~Cluster();

  const ClusterOptions& options() const { return options_; }
  std::string address() const;  // for callers
  std::string membership_address() const;
  int grpc_port() const { return grpc_port_; }
  int http_port() const { return http_port_; }
  int membership_port() const { return membership_port_; }
  int worker_port(int index) const;

  pid_t coordinator() const { return coordinator_->pid(); }
  std::vector<pid_t> Workers() const;
  std::vector<pid_t> Processes() const;  // the coordinator's and the workers'

  std::unique_ptr<v1::AttentionService::Stub> Stub() const;
  std::shared_ptr<grpc::Channel> Channel() const;

  absl::StatusOr<v1::GetClusterResponse> Describe() const;

  // An error holds the HTTP status.
  absl::StatusOr<std::string> HttpGet(const std::string& path) const;

  absl::StatusOr<std::string> Metrics() const;

  absl::StatusOr<double> Metric(const std::string& series) const;

  absl::Status AddWorker(const std::vector<std::string>& further);

  absl::Status RestartCoordinator();

  absl::Status StartEnded();

  absl::Status Restore(std::chrono::milliseconds limit);

  // Sends SIGTERM; an error if a process fails, is late, or a worker's process remains.
  absl::Status Stop();

  std::string Logs() const;
  std::string KeepLogs();  // keeps and returns the folder

 private:
  explicit Cluster(ClusterOptions options) : options_(std::move(options)) {}
  absl::Status StartCoordinator();
  absl::Status StartWorker(size_t index, const std::vector<std::string>& further);
  absl::Status AwaitReady();
  std::string Host(size_t index) const;
  std::string Network(size_t index) const;
  std::string Log(const std::string& name) const;

  const ClusterOptions options_;
  TestFolder folder_;
  int grpc_port_ = 0, http_port_ = 0, membership_port_ = 0;
  std::unique_ptr<Program> coordinator_;
  std::vector<std::unique_ptr<Program>> workers_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hilbert_ring::testing
