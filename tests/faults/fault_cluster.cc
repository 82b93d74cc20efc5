#include "tests/faults/fault_cluster.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/faults/process_account.h"
#include "tests/free_port.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kStartLimit{30'000};
constexpr milliseconds kStopLimit{20'000};
constexpr milliseconds kPoll{10};
constexpr milliseconds kDescribeLimit{2'000};

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// Those that gave their jobs back and rest are back soon.
int Registered(const v1::GetClusterResponse& cluster) {
  return static_cast<int>(std::count_if(cluster.workers().begin(), cluster.workers().end(),
                                        [](const v1::ClusterWorker& worker) {
                                          return worker.state() != v1::ClusterWorker::STATE_JOINING;
                                        }));
}

}  // namespace

const char* PlaceName(WorkerPlace place) {
  switch (place) {
    case WorkerPlace::kLocal:
      return "Local";
    case WorkerPlace::kRemote:
      return "Remote";
    case WorkerPlace::kUnshared:
      return "Unshared";
  }
  return "";
}

std::string FaultCluster::Host(int index) const {
  return options_.hosts.empty() ? "127.0.0.1" : options_.hosts.at(index);
}

std::string FaultCluster::Network(int index) const {
  return options_.networks.empty() ? "" : options_.networks.at(index);
}

std::string FaultCluster::address() const { return absl::StrCat(Host(0), ":", port_); }

absl::StatusOr<std::unique_ptr<FaultCluster>> FaultCluster::Start(
    const FaultClusterOptions& options) {
  std::unique_ptr<FaultCluster> cluster(new FaultCluster(options));
  char folder[] = "/tmp/hilbert_ring_fault_XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::InternalError("mkdtemp failed");
  cluster->folder_ = folder;
  cluster->port_ = FreePort();
  do {
    cluster->membership_port_ = FreePort();
  } while (cluster->membership_port_ == cluster->port_ && cluster->port_ != 0);
  if (cluster->port_ == 0 || cluster->membership_port_ == 0)
    return absl::InternalError("no free port");
  cluster->channel_ = Dial(cluster->address());
  if (absl::Status status = cluster->StartCoordinator(); !status.ok()) return status;
  if (options.place != WorkerPlace::kLocal) cluster->workers_.resize(options.workers);
  if (absl::Status status = cluster->Restore(kStartLimit); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; logs are in ", cluster->KeepLogs()));
  }
  return cluster;
}

FaultCluster::~FaultCluster() {
  // A stopped process hears no SIGTERM.
  for (const pid_t pid : Processes()) kill(pid, SIGCONT);
  if (coordinator_ != nullptr && coordinator_->Runs()) Stop().IgnoreError();
  workers_.clear();
  coordinator_.reset();
  std::error_code ignored;
  if (!keep_logs_ && std::getenv("HILBERT_RING_FAULT_KEEP_LOGS") == nullptr)
    std::filesystem::remove_all(folder_, ignored);
}

std::string FaultCluster::KeepLogs() {
  keep_logs_ = true;
  return folder_;
}

absl::Status FaultCluster::StartCoordinator() {
  const bool local = options_.place == WorkerPlace::kLocal;
  std::vector<std::string> arguments = {
      options_.coordinator.empty() ? HILBERT_RING_COORDINATOR_BINARY : options_.coordinator,
      absl::StrCat("--grpc-host=", Host(0)),
      absl::StrCat("--grpc-port=", port_),
      absl::StrCat("--http-host=", Host(0)),
      "--http-port=0",
      absl::StrCat("--membership-port=", membership_port_),
      absl::StrCat("--spawn-workers=", local ? options_.workers : 0),
      absl::StrCat("--min-workers=", options_.workers),
      absl::StrCat("--share-memory=", options_.place == WorkerPlace::kRemote ? "false" : "true"),
      "--warm-up=false",  // which device or link fails first is the test's to say
      "--log-level=info"};
  if (!options_.hosts.empty()) arguments.push_back("--insecure");
  arguments.insert(arguments.end(), options_.coordinator_arguments.begin(),
                   options_.coordinator_arguments.end());
  auto program = Program::Start({.arguments = std::move(arguments),
                                 .log = absl::StrCat(folder_, "/coordinator.log"),
                                 .network = Network(0)});
  if (!program.ok()) return program.status();
  coordinator_ = *std::move(program);
  return absl::OkStatus();
}

absl::Status FaultCluster::StartWorker(int index) {
  const bool other = index + 1 == options_.workers && !options_.last_worker.empty();
  std::vector<std::string> arguments = {
      other ? options_.last_worker : HILBERT_RING_WORKER_BINARY,
      absl::StrCat("--coordinator=", Host(0), ":", membership_port_),
      absl::StrCat("--host=", Host(1 + index)),
      "--port=0",
      "--threads=1",
      "--memory-limit=4GiB",
      "--share-memory=false",
      "--log-level=info"};
  if (!options_.hosts.empty()) arguments.push_back("--insecure");
  arguments.insert(arguments.end(), options_.worker_arguments.begin(),
                   options_.worker_arguments.end());
  auto program = Program::Start({.arguments = std::move(arguments),
                                 .log = absl::StrCat(folder_, "/worker", index, ".log"),
                                 .network = Network(1 + index)});
  if (!program.ok()) return program.status();
  workers_.at(index) = *std::move(program);
  return absl::OkStatus();
}

absl::Status FaultCluster::RestartCoordinator() {
  const auto ended = coordinator_->AwaitEnd(kStopLimit);
  if (!ended.ok()) return ended.status();
  if (absl::Status status = StartCoordinator(); !status.ok()) return status;
  channel_ = Dial(address());
  return absl::OkStatus();
}

std::vector<pid_t> FaultCluster::Workers() {
  std::vector<pid_t> pids;
  if (options_.place != WorkerPlace::kLocal) {
    for (const auto& worker : workers_) {
      if (worker != nullptr && worker->Runs()) pids.push_back(worker->pid());
    }
    return pids;
  }
  if (coordinator_ == nullptr) return pids;
  for (const pid_t pid : ChildrenOf(coordinator_->pid())) {
    if (!AccountOf(pid).zombie) pids.push_back(pid);
  }
  return pids;
}

std::vector<pid_t> FaultCluster::Processes() {
  std::vector<pid_t> pids = Workers();
  if (coordinator_ != nullptr && coordinator_->Runs()) pids.push_back(coordinator_->pid());
  return pids;
}

absl::StatusOr<v1::GetClusterResponse> FaultCluster::Describe() const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDescribeLimit);
  context.set_wait_for_ready(true);
  v1::GetClusterResponse response;
  const grpc::Status status =
      v1::AttentionService::NewStub(channel_)->GetCluster(&context, {}, &response);
  if (!status.ok()) return wire::FromGrpc(status);
  return response;
}

absl::Status FaultCluster::StartEnded() {
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    if (workers_[i] != nullptr && workers_[i]->Runs()) continue;
    if (absl::Status status = StartWorker(i); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FaultCluster::Restore(milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  int registered = 0;
  while (true) {
    if (absl::Status status = StartEnded(); !status.ok()) return status;
    if (!coordinator_->Runs()) return absl::UnavailableError("the coordinator has ended");
    const auto cluster = Describe();
    if (cluster.ok()) registered = Registered(*cluster);
    if (cluster.ok() && cluster->ready() && registered == options_.workers) break;
    if (Clock::now() > end) {
      return absl::DeadlineExceededError(absl::StrCat(
          registered, " of ", options_.workers, " workers are registered after ", limit.count(),
          " ms; ", cluster.ok() ? "ready" : cluster.status().ToString()));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return absl::OkStatus();
}

absl::Status FaultCluster::Stop() {
  const std::vector<pid_t> workers = Workers();
  coordinator_->Signal(SIGTERM);
  auto how = coordinator_->AwaitEnd(kStopLimit);
  absl::Status status = how.ok() ? absl::OkStatus() : how.status();
  if (how.ok() && *how != "exit status 0") status = absl::InternalError("coordinator: " + *how);
  for (const auto& worker : workers_) {
    if (worker == nullptr || !worker->Runs()) continue;
    worker->Signal(SIGTERM);
    how = worker->AwaitEnd(kStopLimit);
    if (status.ok() && !how.ok()) status = how.status();
    if (status.ok() && *how != "exit status 0") status = absl::InternalError("worker: " + *how);
  }
  for (const pid_t pid : workers) {
    if (status.ok() && AccountOf(pid).there) {
      status = absl::InternalError(absl::StrCat("worker process ", pid, " is still there"));
    }
  }
  return status;
}

}  // namespace hilbert_ring::testing
