// A coordinator and workers as processes that a test may kill, stop and start again.
//
//   auto cluster = Cluster::Start({.workers = 2});
//   auto stub = (*cluster)->Stub();
//   ...                                                // a job
//   EXPECT_TRUE((*cluster)->Stop().ok());
//
// All listen on the loopback interface, unless the options give them networks of their own.
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
  kLocal,     // started by the coordinator, which shares memory with them
  kBeside,    // started by the test; the coordinator shares memory with them
  kRemote,    // started by the test, as on other hosts: no memory is offered to them
  kUnshared,  // likewise, but they are offered memory and turn it down, as in other containers
};

const char* PlaceName(WorkerPlace place);

struct ClusterOptions {
  int workers = 2;
  WorkerPlace place = WorkerPlace::kLocal;
  std::vector<std::string> arguments;         // further ones of the coordinator
  std::vector<std::string> worker_arguments;  // and of workers that the test starts
  bool spread = true;  // every job over all workers, so that small ones use rings
  bool log_files =
      false;  // logs of level info lie in a folder; else warnings go where the test's do
  std::string
      last_worker;  // program of the last worker, if the test starts it; empty: as the others
  // Program of the coordinator, which starts the hilbert-ring-worker beside it; empty: the
  // service's.
  std::string coordinator;
  // Network namespaces and the addresses in them: the coordinator's first, then one of each worker
  // that the test starts. Empty: all on the loopback interface of the caller's namespace.
  std::vector<std::string> networks, hosts;
};

class Cluster {
 public:
  // Once it is ready. Errors hold the logs, where they are in files.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(const ClusterOptions& options);
  // Ends it, by force where it must. Its logs stay where HILBERT_RING_KEEP_LOGS is set.
  ~Cluster();

  const ClusterOptions& options() const { return options_; }
  std::string address() const;             // of callers
  std::string membership_address() const;  // where workers register
  int grpc_port() const { return grpc_port_; }
  int http_port() const { return http_port_; }
  int membership_port() const { return membership_port_; }
  int worker_port(int index) const;  // of one that the test started

  // Processes that run: a stopped one too, one that has ended not.
  pid_t coordinator() const { return coordinator_->pid(); }
  std::vector<pid_t> Workers() const;
  std::vector<pid_t> Processes() const;  // the coordinator's and the workers'

  // Over a channel of its own, in clear text.
  std::unique_ptr<v1::AttentionService::Stub> Stub() const;
  std::shared_ptr<grpc::Channel> Channel() const;

  absl::StatusOr<v1::GetClusterResponse> Describe() const;

  // Body of an HTTP GET in clear text over the loopback interface, or an error that holds the HTTP
  // status.
  absl::StatusOr<std::string> HttpGet(const std::string& path) const;

  // The coordinator's /metrics. Thread-safe.
  absl::StatusOr<std::string> Metrics() const;

  // What such a page says (metrics_page.h).
  absl::StatusOr<double> Metric(const std::string& series) const;

  // One more worker, not waited for.
  absl::Status AddWorker(const std::vector<std::string>& further);

  // Starts a coordinator on the same ports, when the last one has ended. Not waited for.
  absl::Status RestartCoordinator();

  // Starts those of the test's workers that have ended again, without waiting for them.
  absl::Status StartEnded();

  // The same, and waits until as many workers as there were at the start are registered.
  absl::Status Restore(std::chrono::milliseconds limit);

  // SIGTERM; whether all ended well in time, and no worker's process is left.
  absl::Status Stop();

  std::string Logs() const;  // what all have written to files
  std::string KeepLogs();    // the folder, which stays

 private:
  explicit Cluster(ClusterOptions options) : options_(std::move(options)) {}
  absl::Status StartCoordinator();
  absl::Status StartWorker(size_t index, const std::vector<std::string>& further);
  absl::Status AwaitReady();
  std::string Host(size_t index) const;  // 0: the coordinator's
  std::string Network(size_t index) const;
  std::string Log(const std::string& name) const;

  const ClusterOptions options_;
  TestFolder folder_;
  int grpc_port_ = 0, http_port_ = 0, membership_port_ = 0;
  std::unique_ptr<Program> coordinator_;
  std::vector<std::unique_ptr<Program>> workers_;  // the test's
  std::shared_ptr<grpc::Channel> channel_;         // for Describe
};

}  // namespace hilbert_ring::testing
