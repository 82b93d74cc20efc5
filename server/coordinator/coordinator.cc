#include "server/coordinator/coordinator.h"

#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/health_check_service_interface.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "server/process/child_process.h"
#include "server/process/host_port.h"
#include "server/process/logging.h"
#include "server/process/memory_bounds.h"
#include "server/process/ready_file.h"
#include "server/process/stop_signals.h"
#include "server/process/tls.h"
#include "server/process/tokens.h"
#include "server/process/version.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::server {
namespace {

constexpr int kMaxBlockingCalls = 8192;  // heartbeats of kMaxWorkers, plans, cluster states
constexpr int kMaxWorkersOfAHost = 1024;
constexpr int kMostPlans = 2;  // of jobs, and as many of Plan calls: each takes seconds of a CPU
// Reuse saves fresh pages, which cost more time than the compute of 64 tokens.
constexpr auto kKeepShards = std::chrono::milliseconds(500);
constexpr auto kWorkerStopLimit = std::chrono::milliseconds(3000);
constexpr auto kConnectionIdle = std::chrono::minutes(5);

absl::StatusOr<std::string> JoinToken(const CoordinatorSettings& settings) {
  if (!settings.join_token_file.empty()) return ReadTokenFile(settings.join_token_file);
  return settings.spawn_workers > 0 ? DrawSecret() : "";
}

using PortCredentials = std::shared_ptr<grpc::ServerCredentials>;  // null: plain text

absl::StatusOr<PortCredentials> ForCallers(const CoordinatorSettings& settings, Callers& callers,
                                           Metrics& metrics) {
  TlsFiles files = settings.security.tls;
  if (files.cert.empty()) return nullptr;
  files.ca = settings.callers.client_ca;
  files.ca_flag = "--tls-client-ca";
  ASSIGN_OR_RETURN(auto credentials, ServerCredentials(files, "--grpc-port"));
  if (callers.ask_for_tokens()) {
    credentials->SetAuthMetadataProcessor(TokenCheck(
        callers,
        {absl::StrCat("/", v1::AttentionService::service_full_name(), "/"),
         absl::StrCat("/", v1::EncoderService::service_full_name(), "/")},
        [&metrics](const absl::Status& why) { metrics.CountRefused(wire::ReasonOf(why)); }));
  }
  return credentials;
}

// gRPC checks tokens of reflection only on ports with TLS.
bool ShowsReflection(const CoordinatorSettings& settings) {
  return settings.callers.auth_token_file.empty() || !settings.security.tls.cert.empty();
}

absl::StatusOr<PortCredentials> ForWorkers(const SecuritySettings& security) {
  if (security.tls.ca.empty()) return nullptr;
  return ServerCredentials(security.tls, "--membership-port");
}

// The port of a worker on `host`, where spawned workers listen; 0: on another host.
int PortAt(const std::string& host, const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return 0;
  return HostPort(host, port) == address ? port : 0;
}

}  // namespace

absl::StatusOr<Descriptor> TokenInMemory(const std::string& token) {
  Descriptor memory(memfd_create("hilbert-ring-join-token", MFD_CLOEXEC));
  if (memory.number() < 0 || fchmod(memory.number(), S_IRUSR) != 0 ||
      write(memory.number(), token.data(), token.size()) != std::ssize(token)) {
    return absl::UnavailableError(absl::StrCat("join token: memory: ", std::strerror(errno)));
  }
  return memory;
}

std::string PathOfMemory(const Descriptor& memory) {
  return absl::StrCat("/proc/", getpid(), "/fd/", memory.number());
}

Coordinator::Coordinator(const CoordinatorSettings& settings, std::unique_ptr<ReadyFile> ready_file,
                         std::string join_token, std::unique_ptr<AuthTokens> auth_tokens,
                         std::unique_ptr<DataRoot> data_root, Calling calling)
    : settings_(settings),
      expected_workers_(settings.spawn_workers > 0 ? settings.spawn_workers : settings.min_workers),
      ready_file_(std::move(ready_file)),
      join_token_(std::move(join_token)),
      data_root_(std::move(data_root)),
      certificates_(
          {{"service", "--tls-cert", settings.security.tls.cert, CertificateWatch::Holds::kChain},
           {"cluster_ca", "--tls-ca", settings.security.tls.ca,
            CertificateWatch::Holds::kAuthorities},
           {"caller_ca", "--tls-client-ca", settings.callers.client_ca,
            CertificateWatch::Holds::kAuthorities}}),
      callers_(std::move(auth_tokens)),
      rings_([this](const absl::Status& status, bool again, double seconds) {
        metrics_.ObserveRing(status.code(), again, seconds);
      }),
      orders_(settings.order_cache_bytes),
      models_(settings.model_dir),
      shards_(kKeepShards),
      copies_(settings.copy_memory_bytes),
      order_memory_(settings.total_order_memory_limit_bytes),
      plans_(kMostPlans),
      scheduler_([this] { return membership_.Live(); }, settings.max_queue),
      membership_(
          settings.worker_timeout,
          {.joined =
               [this](const Member& member) {
                 metrics_.CountJoined(member.address);
                 Refresh();
               },
           .left =
               [this](const Member&) {
                 metrics_.CountLeft();
                 Refresh();
               },
           .gone =
               [this](const std::string& address) {
                 metrics_.RemoveWorker(address);
                 rate_.Forget(address);
               },
           .closed = [this](const Member&) { Refresh(); },
           .failed = [this](const Member& member) { metrics_.CountFailure(member.address); },
           .beat =
               [this](const Member& member, const v1::Heartbeat& beat) {
                 for (const double seconds : beat.cancel_seconds()) {
                   metrics_.ObserveCancel(seconds);
                 }
                 for (const v1::RunFailure& failure : beat.failures()) {
                   runs_.Report(member.address, failure);
                 }
                 runs_.Look(Clock::now());
               }},
          SystemTime(), std::move(calling)),
      membership_gate_({.calls_per_peer = kMaxWorkersOfAHost,
                        .open_timeout = settings.open_timeout,
                        .peer = PeerIs::kAddress}),
      membership_service_(membership_, membership_gate_, metrics_, join_token_,
                          settings.security.peer_name),
      services_({.cluster = {.membership = membership_,
                             .scheduler = scheduler_,
                             .rate = rate_,
                             .rings = rings_,
                             .runs = runs_,
                             .suspects = suspects_},
                 .memory = {.orders = orders_,
                            .models = models_,
                            .shards = shards_,
                            .threads = threads_,
                            .copies = copies_,
                            .order_memory = order_memory_,
                            .data_root = data_root_.get()},
                 .limits = {.settings = settings_, .quotas = quotas_, .plans = plans_},
                 .observers = {.jobs = jobs_, .metrics = metrics_}}),
      calls_(services_, callers_, kMostPlans),
      attention_service_(services_, calls_, ready_),
      encoder_service_(services_, calls_) {
  if (data_root_ != nullptr) {
    membership_.SetDataMark(data_root_->mark_file(), data_root_->mark());
  }
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(
    const CoordinatorSettings& settings) {
  auto ready_file = std::make_unique<ReadyFile>(settings.ready_file);
  ASSIGN_OR_RETURN(auto join_token, JoinToken(settings));
  std::unique_ptr<AuthTokens> auth_tokens;
  if (!settings.callers.auth_token_file.empty()) {
    ASSIGN_OR_RETURN(auth_tokens, AuthTokens::Read(settings.callers.auth_token_file));
  }
  std::unique_ptr<DataRoot> data_root;
  if (!settings.data_root.empty()) {
    RETURN_IF_ERROR(CheckApart(settings.data_root, settings.model_dir));
    ASSIGN_OR_RETURN(data_root, DataRoot::Open(settings.data_root));
  }
  ASSIGN_OR_RETURN(Calling calling, CallingOf(settings.security));
  calling.answers_bytes = settings.transport_memory_bytes;
  std::unique_ptr<Coordinator> coordinator(
      new Coordinator(settings, std::move(ready_file), std::move(join_token),
                      std::move(auth_tokens), std::move(data_root), std::move(calling)));
  RETURN_IF_ERROR(coordinator->Listen());
  RETURN_IF_ERROR(coordinator->StartWorkers());
  return coordinator;
}

Coordinator::~Coordinator() { Stop(); }

absl::Status Coordinator::Listen() {
  ASSIGN_OR_RETURN(auto for_callers, ForCallers(settings_, callers_, metrics_));
  ASSIGN_OR_RETURN(auto for_workers, ForWorkers(settings_.security));
  {
    // A worker may register before grpc_ is set: its Refresh waits.
    const MutexLock lock(refresh_);
    auto grpc =
        StartGrpc({.flag = "--grpc-port",
                   .host = settings_.grpc_host,
                   .port = settings_.grpc_port,
                   .max_threads = kMaxBlockingCalls,
                   .memory_bytes = settings_.transport_memory_bytes,
                   .lookahead_bytes = wire::kLookaheadBytes,
                   .idle = kConnectionIdle,
                   .streams_per_connection = StreamsOfConnection(settings_.max_calls_per_peer),
                   .credentials = std::move(for_callers),
                   .reflection = ShowsReflection(settings_)},
                  {&attention_service_, &encoder_service_});
    RETURN_IF_ERROR(grpc.status());
    grpc_ = *std::move(grpc);
    ASSIGN_OR_RETURN(membership_grpc_, StartGrpc({.flag = "--membership-port",
                                                  .host = settings_.membership_host,
                                                  .port = settings_.membership_port,
                                                  .max_threads = kMaxBlockingCalls,
                                                  .memory_bytes = MembershipMemory(settings_),
                                                  .credentials = std::move(for_workers),
                                                  .reflection = false},
                                                 {&membership_service_}));
    if (settings_.warm_up) {
      warm_up_ = std::make_unique<WarmUp>(services_, expected_workers_, [this] {
        warm_ = true;
        Refresh();
      });
    }
    warm_ = !settings_.warm_up;
    auto http = HttpEndpoint::Start(
        settings_.http_host, settings_.http_port, HttpRoutes(),
        {.cert = settings_.security.tls.cert,
         .key = settings_.security.tls.key,
         .shown = [this](const std::string& pem) { certificates_.Show("http", pem); }});
    RETURN_IF_ERROR(http.status());
    http_ = *std::move(http);
    SetHealth(membership_grpc_, v1::MembershipService::service_full_name(), true);
  }
  const std::string membership = HostPort(settings_.membership_host, membership_grpc_.port);
  spdlog::info("version {}: gRPC on {}, HTTP on {}, workers on {}", kVersion,
               HostPort(settings_.grpc_host, grpc_.port),
               HostPort(settings_.http_host, http_->port()), membership);
  if (join_token_.empty() && settings_.security.tls.ca.empty()) {
    spdlog::warn(
        "neither --join-token-file nor --tls-ca is given: every host that reaches {} can register"
        " a worker and get rows",
        membership);
  }
  Refresh();
  return absl::OkStatus();
}

absl::Status Coordinator::StartWorkers() {
  const int workers = settings_.spawn_workers;
  if (workers == 0) {
    spdlog::info("waiting for {} workers to register", settings_.min_workers);
    return absl::OkStatus();
  }
  const int hardware = static_cast<int>(std::thread::hardware_concurrency());
  const int threads =
      settings_.worker_threads > 0 ? settings_.worker_threads : std::max(1, hardware / workers);
  const std::string host =
      IsWildcard(settings_.membership_host) ? loopback_ : settings_.membership_host;
  ASSIGN_OR_RETURN(token_file_, TokenInMemory(join_token_));
  std::vector<std::string> arguments = {
      absl::StrCat("--coordinator=", HostPort(host, membership_grpc_.port)),
      absl::StrCat("--join-token-file=", PathOfMemory(token_file_)),
      absl::StrCat("--host=", loopback_),
      "--port=0",
      absl::StrCat("--threads=", threads),
      absl::StrCat("--memory-limit=", settings_.memory_limit_bytes),
      absl::StrCat("--memory-share=", 1.0 / workers),
      absl::StrCat("--http-host=", loopback_),
      "--http-port=0",
      absl::StrCat("--log-level=", settings_.log_level),
      absl::StrCat("--log-format=", settings_.log_format)};
  if (!settings_.callers.auth_token_file.empty()) {
    arguments.push_back(absl::StrCat("--auth-token-file=", settings_.callers.auth_token_file));
  }
  if (!settings_.security.tls.cert.empty()) {
    arguments.push_back(absl::StrCat("--http-tls-cert=", settings_.security.tls.cert));
    arguments.push_back(absl::StrCat("--http-tls-key=", settings_.security.tls.key));
  }
  if (!settings_.model_dir.empty()) {
    arguments.push_back(absl::StrCat("--model-dir=", settings_.model_dir));
    arguments.push_back(absl::StrCat("--model-memory=", settings_.model_memory_bytes));
  }
  if (!settings_.data_root.empty()) {
    arguments.push_back(absl::StrCat("--data-root=", settings_.data_root));
  }
  if (!settings_.share_memory) arguments.emplace_back("--share-memory=false");  // of weights
  WorkerProcessOptions options{.program = absl::StrCat(ExecutableFolder(), "/hilbert-ring-worker"),
                               .arguments = std::move(arguments),
                               .heard = [this] { return PortsOfMembers(); }};
  const int gpus = VisibleGpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES"));
  for (const WorkerPlacement& place : PlaceWorkers(workers, settings_.device, gpus)) {
    options.of_workers.push_back(
        {absl::StrCat("--device=", place.device),
         absl::StrCat("--gpu-memory-fraction=", place.gpu_share * kGpuMemoryFraction)});
    options.share_gpu = options.share_gpu || place.gpu_share < 1;
  }
  auto processes = std::make_unique<WorkerProcesses>(std::move(options));
  const MutexLock lock(spawned_);
  workers_ = std::move(processes);
  return absl::OkStatus();
}

void Coordinator::Quarantine(const Member& worker) {
  if (!membership_.Quarantine(worker)) return;
  WorkerProcesses* const spawned = Spawned();
  const int port = PortAt(loopback_, worker.address);
  if (spawned != nullptr && port != 0) spawned->Replace(port);
}

std::set<int> Coordinator::PortsOfMembers() const {
  std::set<int> ports;
  for (const std::string& address : membership_.Joined()) ports.insert(PortAt(loopback_, address));
  ports.erase(0);
  return ports;
}

WorkerProcesses* Coordinator::Spawned() {
  const MutexLock lock(spawned_);
  return workers_.get();
}

HttpReply Coordinator::Ready() {
  if (draining_) return {.status = 503, .body = "stopping\n"};
  std::string excluded;
  for (const v1::ClusterWorker& worker : membership_.Describe()) {
    if (worker.state() != v1::ClusterWorker::STATE_QUARANTINED || worker.reason().empty()) continue;
    absl::StrAppend(&excluded, "worker ", worker.address(), " ", worker.reason(), "\n");
  }
  if (ready_) return {.body = absl::StrCat("ok\n", excluded)};
  const std::string why = warm_up_ == nullptr ? "" : warm_up_->Why();
  return {
      .status = 503,
      .body = absl::StrCat(enough_ ? "warming up\n" : "not enough workers\n", excluded,
                           why.empty() ? "" : absl::StrCat("the warm-up job failed: ", why, "\n"))};
}

void Coordinator::SetHealth(const GrpcEndpoint& endpoint, const char* service, bool serving) {
  if (endpoint.server == nullptr) return;
  grpc::HealthCheckServiceInterface* health = endpoint.server->GetHealthCheckService();
  health->SetServingStatus(serving);
  health->SetServingStatus(service, serving);
}

// The service becomes ready after the warm-up over all expected workers. From then on it is ready
// while it has a worker.
void Coordinator::Refresh() {
  const MutexLock lock(refresh_);
  const Members live = membership_.Live();
  scheduler_.Changed();
  if (grpc_.server == nullptr || http_ == nullptr) return;
  const int needed = was_ready_ ? 1 : expected_workers_;
  const bool enough = !draining_ && static_cast<int>(live.size()) >= needed;
  enough_ = enough;
  const bool ready = enough && warm_;
  if (ready != ready_) {
    ready_ = ready;
    SetHealth(grpc_, v1::AttentionService::service_full_name(), ready);
    SetHealth(grpc_, v1::EncoderService::service_full_name(), ready);
    LogEvent(spdlog::level::info, ready ? "ready" : "not ready",
             {{"workers", static_cast<int64_t>(live.size())}});
  }
  if (!ready || was_ready_) return;
  was_ready_ = true;
  std::vector<std::string> addresses;
  for (const auto& member : live) addresses.push_back(member->address);
  ready_file_->Show({{"grpc_port", grpc_.port},
                     {"http_port", http_->port()},
                     {"membership_port", membership_grpc_.port}},
                    addresses);
}

void Coordinator::Stop() {
  if (grpc_.server == nullptr) return;
  draining_ = true;
  calls_.Drain();
  scheduler_.Close(Stopping());
  Refresh();
  SetHealth(membership_grpc_, v1::MembershipService::service_full_name(), false);
  if (warm_up_ != nullptr) warm_up_->Stop();
  ready_file_->Hide();
  spdlog::info("stopping: {} jobs running, {} waiting", scheduler_.running(), scheduler_.waiting());
  const Deadline deadline = Clock::now() + settings_.exit_timeout;
  while (Clock::now() < deadline && !calls_.AwaitIdle(std::chrono::milliseconds(50))) {
    if (AwaitStopSignal(std::chrono::milliseconds(0))) break;
  }
  jobs_.StopAll(Stopping());
  calls_.AwaitIdle(std::chrono::milliseconds(1000));
  if (WorkerProcesses* const spawned = Spawned()) spawned->Stop(kWorkerStopLimit);
  for (GrpcEndpoint* endpoint : {&grpc_, &membership_grpc_}) {
    if (endpoint->server != nullptr) endpoint->Shutdown(std::chrono::milliseconds(100));
  }
  {
    const MutexLock lock(refresh_);
    grpc_.server.reset();
  }
  http_.reset();
  spdlog::info("stopped");
}

}  // namespace hilbert_ring::server
