#include "server/worker/worker.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/health_check_service_interface.h"
#include "server/access/callers.h"
#include "server/files/data_root.h"
#include "server/process/host_port.h"
#include "server/process/process_memory.h"
#include "server/process/stop_signals.h"
#include "server/process/tls.h"
#include "server/process/tokens.h"
#include "server/process/version.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kModelScanInterval{1000};
constexpr std::chrono::milliseconds kMarkInterval{1000};  // of the data root
constexpr std::chrono::milliseconds kCoordinatorSilence{4000};
constexpr std::chrono::milliseconds kEndLimit{5000};  // after the wait for jobs
constexpr int kMaxBlockingCalls = 512;  // jobs, rings, and calls of a former coordinator
constexpr int kOtherThreads = 2;        // beside the jobs'

TlsFiles HttpTlsOf(const WorkerSettings& settings) {
  TlsFiles files{.cert = settings.security.tls.cert, .key = settings.security.tls.key};
  if (settings.http.cert.empty()) return files;
  files.cert = settings.http.cert;
  files.key = settings.http.key;
  files.cert_flag = "--http-tls-cert";
  files.key_flag = "--http-tls-key";
  return files;
}

absl::Status CheckSettings(const WorkerSettings& settings) {
  if (IsWildcard(settings.host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host is ", settings.host,
                     ", must be an address at which the coordinator and other workers reach this "
                     "worker"));
  }
  RETURN_IF_ERROR(CheckApart(settings.data_root, settings.model_dir));
  if (!settings.security.tls.ca.empty()) RETURN_IF_ERROR(CheckTlsFiles(settings.security.tls));
  const TlsFiles http = HttpTlsOf(settings);
  return http.cert.empty() ? absl::OkStatus() : CheckTlsFiles(http);
}

std::string WeightFolder(const WorkerSettings& settings, const Device& device) {
  // A worker alone has its own weights, in huge pages, which files in memory seldom have: the
  // layers of 4 tiles of the published size took 15 ms in place of 29 (AMD EPYC, Zen 4, two
  // threads).
  const bool alone = settings.memory_share >= 1;
  const bool shares =
      settings.share_memory && !alone && !settings.model_dir.empty() && device.host_memory();
  return shares ? "/dev/shm" : "";
}

std::optional<int> GpuOf(const WorkerSettings& settings, const Device& device) {
  if (device.host_memory()) return std::nullopt;
  return GpuOrdinal(settings.device.device).value_or(0);
}

}  // namespace

Worker::Worker(const WorkerSettings& settings, WorkerDevices devices, absl::Status self_test,
               std::unique_ptr<ReadyFile> ready_file, std::unique_ptr<AuthTokens> tokens,
               int64_t memory_limit)
    : settings_(settings),
      devices_(std::move(devices)),
      self_test_(std::move(self_test)),
      ready_file_(std::move(ready_file)),
      certificates_(
          {{"service", "--tls-cert", settings.security.tls.cert, CertificateWatch::Holds::kChain},
           {"cluster_ca", "--tls-ca", settings.security.tls.ca,
            CertificateWatch::Holds::kAuthorities}}),
      readers_(std::move(tokens)),
      models_(settings.model_dir, settings.model_memory_bytes,
              WeightFolder(settings, *devices_.main),
              devices_.main->host_memory() ? nullptr : devices_.main.get()),
      state_{.memory = JobMemory(memory_limit),
             .rings = RingTable(MakeRingTransport(settings.host, GpuOf(settings, *devices_.main))),
             .share_memory = settings.share_memory,
             .feed_timeout = settings.feed_timeout,
             .open_timeout = settings.open_timeout,
             .make_encode = [this](const v1::RunOpen& open,
                                   int threads) { return MakeEncodeRun(open, models_, threads); },
             .data_root = settings.data_root},
      service_(state_) {
  state_.lanes.emplace_back(*devices_.main);
  for (const auto& express : devices_.express) state_.lanes.emplace_back(*express);
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(WorkerSettings settings,
                                                      WorkerDevices devices,
                                                      absl::Status self_test) {
  auto ready_file = std::make_unique<ReadyFile>(settings.ready_file);
  RETURN_IF_ERROR(CheckSettings(settings));
  if (settings.http_host.empty()) settings.http_host = settings.host;
  std::string join_token;
  if (!settings.join_token_file.empty()) {
    ASSIGN_OR_RETURN(join_token, ReadTokenFile(settings.join_token_file));
  }
  std::unique_ptr<AuthTokens> tokens;
  if (!settings.http.auth_token_file.empty()) {
    ASSIGN_OR_RETURN(tokens, AuthTokens::Read(settings.http.auth_token_file));
  }
  ASSIGN_OR_RETURN(const int64_t memory_limit, JobMemoryLimit(settings, *devices.main));
  ASSIGN_OR_RETURN(Calling calling, CallingOf(settings.security));
  std::unique_ptr<Worker> worker(new Worker(settings, std::move(devices), std::move(self_test),
                                            std::move(ready_file), std::move(tokens),
                                            memory_limit));
  RETURN_IF_ERROR(worker->Listen());
  worker->Register(join_token, std::move(calling));
  return worker;
}

Worker::~Worker() { Stop(); }

absl::Status Worker::Listen() {
  std::shared_ptr<grpc::ServerCredentials> credentials;  // null: plain text
  if (!settings_.security.tls.ca.empty()) {
    ASSIGN_OR_RETURN(credentials, ServerCredentials(settings_.security.tls, "--port"));
  }
  ASSIGN_OR_RETURN(grpc_,
                   StartGrpc({.flag = "--port",
                              .host = settings_.host,
                              .port = settings_.port,
                              .max_threads = kMaxBlockingCalls,
                              .kept_threads = static_cast<int>(state_.lanes.size()) + kOtherThreads,
                              .silence = kCoordinatorSilence,
                              .credentials = std::move(credentials),
                              .reflection = false},
                             {&service_}));
  SetReady(false);
  const TlsFiles tls = HttpTlsOf(settings_);
  ASSIGN_OR_RETURN(http_,
                   HttpEndpoint::Start(
                       settings_.http_host, settings_.http_port,
                       {{"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }},
                        {"/metrics", ForPrometheus(
                                         readers_,
                                         [this](const absl::Status& why) {
                                           state_.metrics.CountRefused(wire::ReasonOf(why));
                                         },
                                         [this] { return ServeMetrics(); })}},
                       {.cert = tls.cert, .key = tls.key, .shown = [this](const std::string& pem) {
                          certificates_.Show("http", pem);
                        }}));
  const DeviceInfo info = devices_.main->info();
  spdlog::info("version {}: {} on {}, kernel {}, rings over {}, HTTP on {}", kVersion,
               HostPort(settings_.host, grpc_.port), info.name, info.kernel,
               state_.rings.transport(), HostPort(settings_.http_host, http_->port()));
  if (!self_test_.ok()) spdlog::error("self-test: {}", std::string(self_test_.message()));
  if (settings_.http.auth_token_file.empty() && !IsLoopback(settings_.http_host)) {
    spdlog::warn("no --auth-token-file: unauthenticated callers of {} read this worker's /metrics",
                 HostPort(settings_.http_host, http_->port()));
  }
  return absl::OkStatus();
}

HttpReply Worker::ServeMetrics() {
  const DeviceInfo info = devices_.main->info();
  return {.content_type = WorkerMetrics::ContentType(),
          .body = state_.metrics.Serialize({.version = std::string(kVersion),
                                            .device = info.name,
                                            .kernel = info.kernel,
                                            .transport = state_.rings.transport(),
                                            .registered = registered_,
                                            .runs = state_.calls.count(),
                                            .rings = state_.rings.count(),
                                            .memory_limit_bytes = state_.memory.limit(),
                                            .memory_used_bytes = state_.memory.used(),
                                            .models = models_.count(),
                                            .model_memory_limit_bytes = models_.limit(),
                                            .model_memory_used_bytes = models_.bytes(),
                                            .certificate_ends = certificates_.Ends()})};
}

void Worker::SetReady(bool ready) {
  grpc::HealthCheckServiceInterface* health = grpc_.server->GetHealthCheckService();
  health->SetServingStatus(ready);
  health->SetServingStatus(v1::WorkerService::service_full_name(), ready);
  if (!ready) return ready_file_->Hide();
  ready_file_->Show({{"grpc_port", grpc_.port}}, {HostPort(settings_.host, grpc_.port)});
}

void Worker::Register(const std::string& join_token, Calling calling) {
  const absl::Status can_encode = CanEncode(*devices_.main);
  if (!settings_.model_dir.empty() && can_encode.ok()) {
    scan_.emplace(models_.catalog(), kModelScanInterval);
  } else if (!settings_.model_dir.empty()) {
    spdlog::warn("--model-dir: this worker gets no encoders: {}",
                 std::string(can_encode.message()));
  }
  data_mark_.emplace(settings_.data_root, kMarkInterval);
  registration_.emplace(
      settings_.coordinator, join_token, state_.secret,
      Registration::Hooks{.heartbeat = [this] { return Beat(); },
                          .registered = [this](bool registered) { NoteRegistered(registered); },
                          .reply =
                              [this](const v1::HeartbeatReply& reply) {
                                data_mark_->Look(reply.data_mark_file());
                              }},
      std::move(calling));
  data_mark_->SetOnChange([this] { registration_->BeatNow(); });
  state_.calls.SetOnFailure([this] { registration_->BeatNow(); });
}

void Worker::NoteRegistered(bool registered) {
  registered_ = registered;
  if (registered) state_.metrics.CountRegistration();
  SetReady(registered);
  if (draining_) SetReady(false);
  if (registered) return;
  state_.calls.CancelAll();
  state_.rings.CloseAll();
}

v1::Heartbeat Worker::Beat() {
  const DeviceInfo info = devices_.main->info();
  v1::Heartbeat beat = state_.calls.TakeNews();
  beat.set_address(HostPort(settings_.host, grpc_.port));
  beat.set_version(std::string(kVersion));
  beat.set_device(info.name);
  beat.set_kernel(info.kernel);
  beat.set_transport(state_.rings.transport());
  beat.set_self_test(std::string(self_test_.message()));
  beat.set_memory_limit_bytes(state_.memory.limit());
  beat.set_memory_used_bytes(state_.memory.used());
  beat.set_memory_resident_bytes(ResidentBytes());
  beat.set_draining(draining_);
  beat.set_http_port(http_->port());
  beat.set_threads(info.threads);
  beat.set_express_lanes(static_cast<int>(devices_.express.size()));
  beat.set_model_memory_bytes(models_.limit());
  beat.set_bfloat16_products(models_.ProductsOf(DataType::kBFloat16) == DataType::kBFloat16);
  if (scan_) scan_->AddTo(beat);
  beat.set_data_mark(data_mark_->mark());
  return beat;
}

void Worker::Run() {
  AwaitStopSignal(std::nullopt);
  LimitStop(settings_.exit_timeout + kEndLimit);
  Stop();
}

// The coordinator retries jobs elsewhere that it gave just before it knew.
void Worker::AwaitDrained() {
  constexpr std::chrono::milliseconds kPoll{20};
  const auto deadline = std::chrono::steady_clock::now() + settings_.exit_timeout;
  do {
    if (AwaitStopSignal(kPoll)) return;
  } while (state_.calls.count() > 0 && std::chrono::steady_clock::now() < deadline);
}

void Worker::Stop() {
  if (!registration_) return;
  draining_ = true;
  SetReady(false);
  registration_->BeatNow();
  spdlog::info("stopping: {} jobs running", state_.calls.count());
  AwaitDrained();
  state_.calls.SetOnFailure(nullptr);
  data_mark_->SetOnChange(nullptr);
  registration_.reset();
  data_mark_.reset();
  scan_.reset();
  spdlog::info("stopped");
  grpc_.Shutdown(std::chrono::milliseconds(100));
}

}  // namespace hilbert_ring::server
