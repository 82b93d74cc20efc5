// A coordinator and workers as processes that a test may kill, stop and start again.
//
//   auto cluster = FaultCluster::Start({.workers = 3, .place = WorkerPlace::kRemote});
//   kill((*cluster)->Workers().at(1), SIGKILL);
//   ...                                     // a job
//   (*cluster)->Restore(limit);             // all are there again
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "tests/faults/program.h"

namespace hilbert_ring::testing {

enum class WorkerPlace {
  kLocal,     // started by the coordinator, which shares memory with them
  kRemote,    // started by the test, as on other hosts: no memory is offered to them
  kUnshared,  // likewise, but they are offered memory and turn it down, as in other containers
};

const char* PlaceName(WorkerPlace place);

struct FaultClusterOptions {
  int workers = 3;
  WorkerPlace place = WorkerPlace::kLocal;
  std::vector<std::string> coordinator_arguments, worker_arguments;  // further ones
  std::string last_worker;  // program of the last of the remote workers; empty: as the others
  // Program of the coordinator, which starts the hilbert-ring-worker beside it; empty: the
  // service's.
  std::string coordinator;
  // Network namespaces and the addresses in them: the coordinator's first, then one of each worker
  // (remote ones alone). Empty: all on the loopback interface of the caller's namespace.
  std::vector<std::string> networks, hosts;
};

class FaultCluster {
 public:
  static absl::StatusOr<std::unique_ptr<FaultCluster>> Start(const FaultClusterOptions& options);
  // Ends it, by force where it must. Its logs stay where HILBERT_RING_FAULT_KEEP_LOGS is set.
  ~FaultCluster();

  const FaultClusterOptions& options() const { return options_; }
  std::string address() const;
  pid_t coordinator() const { return coordinator_->pid(); }

  // Processes that run: a stopped one too, one that has ended not.
  std::vector<pid_t> Workers();
  std::vector<pid_t> Processes();  // the coordinator's and the workers'

  absl::StatusOr<v1::GetClusterResponse> Describe() const;

  // Starts a coordinator on the same port, when the last one has ended.
  absl::Status RestartCoordinator();

  // Starts remote workers that have ended again, without waiting for them.
  absl::Status StartEnded();

  // Starts remote workers that have ended again, and waits until as many workers as there were at
  // the start are registered.
  absl::Status Restore(std::chrono::milliseconds limit);

  // SIGTERM; whether all ended well in time.
  absl::Status Stop();

  // The folder of logs stays.
  std::string KeepLogs();

 private:
  explicit FaultCluster(FaultClusterOptions options) : options_(std::move(options)) {}
  absl::Status StartCoordinator();
  absl::Status StartWorker(int index);
  std::string Host(int index) const;  // 0: the coordinator's
  std::string Network(int index) const;

  const FaultClusterOptions options_;
  std::string folder_;
  bool keep_logs_ = false;
  int port_ = 0, membership_port_ = 0;
  std::unique_ptr<Program> coordinator_;
  std::vector<std::unique_ptr<Program>> workers_;  // remote ones, by index
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hilbert_ring::testing
