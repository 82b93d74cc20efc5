#include "tests/support/cluster.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "nlohmann/json.hpp"
#include "tests/support/free_port.h"
#include "tests/support/http_get.h"
#include "tests/support/metrics_page.h"
#include "tests/support/process_account.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kStartLimit{30'000};
constexpr milliseconds kStopLimit{20'000};
constexpr milliseconds kPoll{5};
constexpr milliseconds kDescribeLimit{2'000};
constexpr int kMessageLimit = 8 << 20;

// Workers that back off register again soon.
int Registered(const v1::GetClusterResponse& cluster) {
  return static_cast<int>(std::count_if(cluster.workers().begin(), cluster.workers().end(),
                                        [](const v1::ClusterWorker& worker) {
                                          return worker.state() != v1::ClusterWorker::STATE_JOINING;
                                        }));
}

std::string ReadyFile(size_t worker) { return absl::StrCat("worker", worker, ".json"); }

nlohmann::json ReadJson(const std::string& path) {
  return nlohmann::json::parse(FileText(path), nullptr, false);
}

void Append(std::vector<std::string>& to, const std::vector<std::string>& further) {
  to.insert(to.end(), further.begin(), further.end());
}

}  // namespace

const char* PlaceName(WorkerPlace place) {
  switch (place) {
    case WorkerPlace::kLocal:
      return "Local";
    case WorkerPlace::kBeside:
      return "Beside";
    case WorkerPlace::kRemote:
      return "Remote";
    case WorkerPlace::kUnshared:
      return "Unshared";
  }
  return "";
}

std::string Cluster::Host(size_t index) const {
  return options_.hosts.empty() ? "127.0.0.1" : options_.hosts.at(index);
}

std::string Cluster::Network(size_t index) const {
  return options_.networks.empty() ? "" : options_.networks.at(index);
}

std::string Cluster::Log(const std::string& name) const {
  return options_.log_files ? folder_ / (name + ".log") : "";
}

std::string Cluster::address() const { return absl::StrCat(Host(0), ":", grpc_port_); }

std::string Cluster::membership_address() const {
  return absl::StrCat(Host(0), ":", membership_port_);
}

int Cluster::worker_port(int index) const {
  return ReadJson(folder_ / ReadyFile(index)).at("grpc_port").get<int>();
}

absl::StatusOr<std::unique_ptr<Cluster>> Cluster::Start(const ClusterOptions& options) {
  std::unique_ptr<Cluster> cluster(new Cluster(options));
  // The test's workers start before the coordinator can report its port.
  if (options.place != WorkerPlace::kLocal) {
    cluster->membership_port_ = FreePort();
    if (cluster->membership_port_ == 0) return absl::InternalError("no free port");
    cluster->workers_.resize(options.workers);
  }
  RETURN_IF_ERROR(cluster->StartCoordinator());
  RETURN_IF_ERROR(cluster->StartEnded());
  if (absl::Status status = cluster->AwaitReady(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(status.message(), "\n", cluster->Logs()));
  }
  return cluster;
}

Cluster::~Cluster() {
  // A stopped process ignores SIGTERM.
  for (const pid_t pid : Processes()) kill(pid, SIGCONT);
  if (coordinator_ != nullptr && coordinator_->Runs()) Stop().IgnoreError();
  if (std::getenv("HILBERT_RING_KEEP_LOGS") != nullptr) folder_.Keep();
}

std::string Cluster::KeepLogs() {
  folder_.Keep();
  return folder_.path();
}

std::string Cluster::Logs() const {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    if (entry.path().extension() == ".log") absl::StrAppend(&text, FileText(entry.path()));
  }
  return text;
}

absl::Status Cluster::StartCoordinator() {
  const bool local = options_.place == WorkerPlace::kLocal;
  std::vector<std::string> arguments = {
      options_.coordinator.empty() ? HILBERT_RING_COORDINATOR_BINARY : options_.coordinator,
      absl::StrCat("--grpc-host=", Host(0)),
      absl::StrCat("--grpc-port=", grpc_port_),
      absl::StrCat("--http-host=", Host(0)),
      absl::StrCat("--http-port=", http_port_),
      absl::StrCat("--membership-host=", Host(0)),
      absl::StrCat("--membership-port=", membership_port_),
      absl::StrCat("--spawn-workers=", local ? options_.workers : 0),
      absl::StrCat("--min-workers=", options_.workers),
      absl::StrCat("--job-workers=", options_.spread ? options_.workers : 0),
      absl::StrCat("--share-memory=", options_.place == WorkerPlace::kRemote ? "false" : "true"),
      absl::StrCat("--log-level=", options_.log_files ? "info" : "warn"),
      "--ready-file=" + (folder_ / "coordinator.json")};
  if (!options_.hosts.empty()) arguments.push_back("--insecure");
  Append(arguments, options_.arguments);
  ASSIGN_OR_RETURN(coordinator_, Program::Start({.arguments = std::move(arguments),
                                                 .log = Log("coordinator"),
                                                 .network = Network(0)}));
  return absl::OkStatus();
}

absl::Status Cluster::StartWorker(size_t index, const std::vector<std::string>& further) {
  const bool other = index + 1 == workers_.size() && !options_.last_worker.empty();
  std::vector<std::string> arguments = {
      other ? options_.last_worker : HILBERT_RING_WORKER_BINARY,
      "--coordinator=" + membership_address(),
      absl::StrCat("--host=", Host(1 + index)),
      "--port=0",
      "--threads=1",
      "--memory-limit=4GiB",
      absl::StrCat("--share-memory=", options_.place == WorkerPlace::kBeside ? "true" : "false"),
      absl::StrCat("--log-level=", options_.log_files ? "info" : "warn"),
      "--ready-file=" + (folder_ / ReadyFile(index))};
  if (!options_.hosts.empty()) arguments.push_back("--insecure");
  Append(arguments, further);
  ASSIGN_OR_RETURN(workers_.at(index), Program::Start({.arguments = std::move(arguments),
                                                       .log = Log(absl::StrCat("worker", index)),
                                                       .network = Network(1 + index)}));
  return absl::OkStatus();
}

absl::Status Cluster::AddWorker(const std::vector<std::string>& further) {
  workers_.push_back(nullptr);
  return StartWorker(workers_.size() - 1, further);
}

absl::Status Cluster::AwaitReady() {
  const Clock::time_point limit = Clock::now() + kStartLimit;
  const auto await = [&](const std::string& file,
                         Program& program) -> absl::StatusOr<nlohmann::json> {
    while (true) {
      nlohmann::json ready = ReadJson(folder_ / file);
      if (ready.is_object()) return ready;
      if (!program.Runs()) return absl::UnavailableError(file + ": its process has ended");
      if (Clock::now() > limit) return absl::DeadlineExceededError(file + ": not in time");
      std::this_thread::sleep_for(kPoll);
    }
  };
  ASSIGN_OR_RETURN(const nlohmann::json ports, await("coordinator.json", *coordinator_));
  grpc_port_ = ports.at("grpc_port").get<int>();
  http_port_ = ports.at("http_port").get<int>();
  membership_port_ = ports.at("membership_port").get<int>();
  channel_ = Channel();
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (auto ready = await(ReadyFile(i), *workers_[i]); !ready.ok()) return ready.status();
  }
  return absl::OkStatus();
}

absl::Status Cluster::RestartCoordinator() {
  if (const auto ended = coordinator_->AwaitEnd(kStopLimit); !ended.ok()) return ended.status();
  RETURN_IF_ERROR(StartCoordinator());
  channel_ = Channel();
  return absl::OkStatus();
}

std::vector<pid_t> Cluster::Workers() const {
  std::vector<pid_t> pids;
  for (const auto& worker : workers_) {
    if (worker != nullptr && worker->Runs()) pids.push_back(worker->pid());
  }
  if (options_.place != WorkerPlace::kLocal || coordinator_ == nullptr) return pids;
  for (const pid_t pid : ChildrenOf(coordinator_->pid())) {
    if (IsAlive(pid)) pids.push_back(pid);
  }
  return pids;
}

std::vector<pid_t> Cluster::Processes() const {
  std::vector<pid_t> pids = Workers();
  if (coordinator_ != nullptr && coordinator_->Runs()) pids.push_back(coordinator_->pid());
  return pids;
}

std::shared_ptr<grpc::Channel> Cluster::Channel() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageLimit);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
}

std::unique_ptr<v1::AttentionService::Stub> Cluster::Stub() const {
  return v1::AttentionService::NewStub(Channel());
}

absl::StatusOr<v1::GetClusterResponse> Cluster::Describe() const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDescribeLimit);
  context.set_wait_for_ready(true);
  v1::GetClusterResponse response;
  const grpc::Status status =
      v1::AttentionService::NewStub(channel_)->GetCluster(&context, {}, &response);
  if (!status.ok()) return wire::FromGrpc(status);
  return response;
}

absl::StatusOr<std::string> Cluster::HttpGet(const std::string& path) const {
  ASSIGN_OR_RETURN(HttpAnswer answer, testing::HttpGet({.port = http_port_, .path = path}));
  if (answer.status != 200) return absl::FailedPreconditionError(absl::StrCat(answer.status));
  return std::move(answer.body);
}

absl::StatusOr<std::string> Cluster::Metrics() const { return HttpGet("/metrics"); }

absl::StatusOr<double> Cluster::Metric(const std::string& series) const {
  ASSIGN_OR_RETURN(const std::string page, Metrics());
  return ReadSeries(page, series);
}

absl::Status Cluster::StartEnded() {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] != nullptr && workers_[i]->Runs()) continue;
    RETURN_IF_ERROR(StartWorker(i, options_.worker_arguments));
  }
  return absl::OkStatus();
}

absl::Status Cluster::Restore(milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  int registered = 0;
  while (true) {
    RETURN_IF_ERROR(StartEnded());
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

absl::Status Cluster::Stop() {
  const std::vector<pid_t> workers = Workers();
  const auto end_well = [](const char* what, Program& program) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string how, program.AwaitEnd(kStopLimit));
    if (how != "exit status 0") return absl::InternalError(absl::StrCat(what, ": ", how));
    return absl::OkStatus();
  };
  coordinator_->Signal(SIGTERM);
  absl::Status status = end_well("coordinator", *coordinator_);
  for (const auto& worker : workers_) {
    if (worker == nullptr || !worker->Runs()) continue;
    worker->Signal(SIGTERM);
    status.Update(end_well("worker", *worker));
  }
  for (const pid_t pid : workers) {
    if (AccountOf(pid).there) {
      status.Update(absl::InternalError(absl::StrCat("worker process ", pid, " is still there")));
    }
  }
  return status;
}

}  // namespace hilbert_ring::testing
