#include "server/worker/worker_process.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/health_check_service_interface.h"
#include "server/access/auth_tokens.h"
#include "server/access/callers.h"
#include "server/access/http_access.h"
#include "server/files/data_root.h"
#include "server/files/mark_watch.h"
#include "server/metrics/worker_metrics.h"
#include "server/models/model_scan.h"
#include "server/process/certificate_watch.h"
#include "server/process/grpc_endpoint.h"
#include "server/process/host_port.h"
#include "server/process/http_endpoint.h"
#include "server/process/kept_threads.h"
#include "server/process/logging.h"
#include "server/process/process_memory.h"
#include "server/process/ready_file.h"
#include "server/process/stop_signals.h"
#include "server/process/tls.h"
#include "server/process/tokens.h"
#include "server/process/version.h"
#include "server/worker/encode_run.h"
#include "server/worker/model_store.h"
#include "server/worker/registration.h"
#include "server/worker/ring_transport.h"
#include "server/worker/worker_service.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr int kBrokenDevice = 3;  // exit status
constexpr std::chrono::milliseconds kModelScanInterval{1000};
constexpr char kSharedFolder[] = "/dev/shm";              // of weights
constexpr std::chrono::milliseconds kMarkInterval{1000};  // of the data root
// As long as a coordinator that answers no more keeps its jobs here (registration.cc).
constexpr std::chrono::milliseconds kCoordinatorSilence{4000};
constexpr std::chrono::milliseconds kEndLimit{5000};  // when no job is waited for any more
constexpr int kMostRunsOfHost = 64;
// Of NCCL's blocks. A block of the Hopper kernels has nearly all registers of its multiprocessor,
// so that NCCL's take multiprocessors of their own.
constexpr int kExchangeBlocks = 8;
constexpr int kMaxBlockingCalls = 512;  // jobs, rings, and what a former coordinator left behind
constexpr int kOtherThreads = 2;        // kept beside those of jobs

// Until the jobs that run here have ended, the time is up, or another stop signal comes. The
// coordinator hears of it meanwhile; a job that it gave us just before is tried again elsewhere.
void AwaitDrained(const ActiveCalls& calls, std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kPoll{20};
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    if (AwaitStopSignal(kPoll)) return;
  } while (calls.count() > 0 && std::chrono::steady_clock::now() < deadline);
}

// Nothing is freed: a GPU may still write. The coordinator gives the jobs to others, and whoever
// started this process starts another.
void EndAtOnce(const absl::Status& error) {
  spdlog::critical("the device is broken, this process ends: {}", std::string(error.message()));
  FlushLog();
  std::_Exit(kBrokenDevice);
}

// The HTTP port's own certificate, else the process's.
HttpTls HttpTlsOf(const WorkerSettings& settings) {
  if (!settings.http.cert.empty()) return {.cert = settings.http.cert, .key = settings.http.key};
  return {.cert = settings.security.tls.cert, .key = settings.security.tls.key};
}

}  // namespace

absl::Status RunWorker(const WorkerSettings& settings, const WorkerDevices& devices,
                       const absl::Status& self_test) {
  ReadyFile ready_file(settings.ready_file);
  if (IsWildcard(settings.host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host is ", settings.host,
                     ", must be an address at which the coordinator and other workers reach this "
                     "worker"));
  }
  RETURN_IF_ERROR(CheckApart(settings.data_root, settings.model_dir));
  if (!settings.security.tls.ca.empty()) {
    RETURN_IF_ERROR(CheckTlsFiles(settings.security.tls));
  }
  CertificateWatch certificates(
      {{"service", "--tls-cert", settings.security.tls.cert, CertificateWatch::Holds::kChain},
       {"cluster_ca", "--tls-ca", settings.security.tls.ca,
        CertificateWatch::Holds::kAuthorities}});
  std::string join_token;
  if (!settings.join_token_file.empty()) {
    ASSIGN_OR_RETURN(join_token, ReadTokenFile(settings.join_token_file));
  }
  const HttpTls http_tls = HttpTlsOf(settings);
  if (!http_tls.cert.empty()) {
    TlsFiles files{.cert = http_tls.cert, .key = http_tls.key};
    if (!settings.http.cert.empty()) {
      files.cert_flag = "--http-tls-cert";
      files.key_flag = "--http-tls-key";
    }
    RETURN_IF_ERROR(CheckTlsFiles(files));
  }
  std::unique_ptr<AuthTokens> tokens;
  if (!settings.http.auth_token_file.empty()) {
    ASSIGN_OR_RETURN(tokens, AuthTokens::Read(settings.http.auth_token_file));
  }
  Callers readers(std::move(tokens));  // of /metrics
  Device& device = *devices.main;
  ASSIGN_OR_RETURN(const int64_t memory_limit, JobMemoryLimit(settings, device));
  JobMemory memory(memory_limit);
  Lanes lanes;
  lanes.emplace_back(device);
  for (const auto& express : devices.express) lanes.emplace_back(*express);
  ActiveCalls calls;
  KeptThreads threads;  // of jobs
  FeedWatch feeds;
  const RingTransport transport = MakeRingTransport(
      {.host = settings.host, .cuda_device = GpuOf(settings, device), .max_ctas = kExchangeBlocks});
  RingTable rings(transport);
  CoordinatorSecret secret;
  const bool on_gpu = !device.host_memory();
  const bool share_weights = settings.share_memory && !settings.model_dir.empty() && !on_gpu;
  ModelStore models(settings.model_dir, settings.model_memory_bytes,
                    share_weights ? kSharedFolder : "", on_gpu ? &device : nullptr);
  const bool bfloat16_products = models.ProductsOf(DataType::kBFloat16) == DataType::kBFloat16;
  WorkerMetrics metrics;
  WorkerState state{
      .lanes = lanes,
      .memory = memory,
      .share_memory = settings.share_memory && device.host_memory(),
      .feed_timeout = settings.feed_timeout,
      .rings = rings,
      .calls = calls,
      .threads = threads,
      .feeds = feeds,
      .device_broken = EndAtOnce,
      .metrics = &metrics,
      .make_encode = [&models](const v1::RunOpen& open,
                               int threads) { return MakeEncodeRun(open, models, threads); },
      .data_root = settings.data_root};
  CallGate gate({.calls_per_peer = kMostRunsOfHost, .open_timeout = settings.open_timeout});
  WorkerService service(state, gate, secret);
  std::shared_ptr<grpc::ServerCredentials> credentials;  // null: plain text
  if (!settings.security.tls.ca.empty()) {
    ASSIGN_OR_RETURN(credentials, ServerCredentials(settings.security.tls, "--port"));
  }
  ASSIGN_OR_RETURN(Calling calling, CallingOf(settings.security));
  ASSIGN_OR_RETURN(auto grpc,
                   StartGrpc({.flag = "--port",
                              .host = settings.host,
                              .port = settings.port,
                              .max_threads = kMaxBlockingCalls,
                              .kept_threads = static_cast<int>(lanes.size()) + kOtherThreads,
                              .silence = kCoordinatorSilence,
                              .credentials = std::move(credentials),
                              .reflection = false},
                             {&service}));
  const std::string address = HostPort(settings.host, grpc.port);
  const DeviceInfo info = device.info();
  std::atomic<bool> registered = false;
  const auto serve_metrics = [&] {
    return HttpReply{.content_type = WorkerMetrics::ContentType(),
                     .body = metrics.Serialize({.version = std::string(kVersion),
                                                .device = info.name,
                                                .kernel = info.kernel,
                                                .transport = transport.name,
                                                .registered = registered,
                                                .runs = calls.count(),
                                                .rings = rings.count(),
                                                .memory_limit_bytes = memory.limit(),
                                                .memory_used_bytes = memory.used(),
                                                .models = models.count(),
                                                .model_memory_limit_bytes = models.limit(),
                                                .model_memory_used_bytes = models.bytes(),
                                                .certificate_ends = certificates.Ends()})};
  };
  const auto set_ready = [&](bool ready) {
    grpc::HealthCheckServiceInterface* health = grpc.server->GetHealthCheckService();
    health->SetServingStatus(ready);
    health->SetServingStatus(v1::WorkerService::service_full_name(), ready);
    if (!ready) return ready_file.Hide();
    ready_file.Show({{"grpc_port", grpc.port}}, {address});
  };
  set_ready(false);
  const std::string http_host = settings.http_host.empty() ? settings.host : settings.http_host;
  const auto http = HttpEndpoint::Start(
      http_host, settings.http_port,
      {{"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }},
       {"/metrics",
        ForPrometheus(
            readers,
            [&metrics](const absl::Status& why) { metrics.CountRefused(wire::ReasonOf(why)); },
            serve_metrics)}},
      {.cert = http_tls.cert, .key = http_tls.key, .shown = [&](const std::string& pem) {
         certificates.Show("http", pem);
       }});
  if (!http.ok()) return http.status();
  const int http_port = (*http)->port();
  spdlog::info("version {}: {} on {}, kernel {}, rings over {}, HTTP on {}", kVersion, address,
               info.name, info.kernel, transport.name, HostPort(http_host, http_port));
  if (!self_test.ok()) spdlog::error("self-test: {}", std::string(self_test.message()));
  if (settings.http.auth_token_file.empty() && !IsLoopback(http_host)) {
    spdlog::warn("no --auth-token-file: whoever reaches {} reads this worker's /metrics",
                 HostPort(http_host, http_port));
  }
  {
    std::atomic<bool> draining = false;
    std::optional<ModelScan> scan;
    const absl::Status can_encode = CanEncode(device);
    if (!settings.model_dir.empty() && can_encode.ok()) {
      scan.emplace(models.catalog(), kModelScanInterval);
    } else if (!settings.model_dir.empty()) {
      spdlog::warn("--model-dir: this worker gets no encoders: {}",
                   std::string(can_encode.message()));
    }
    MarkWatch data_mark(settings.data_root, kMarkInterval);
    Registration registration(
        settings.coordinator, join_token, secret,
        {.heartbeat =
             [&] {
               v1::Heartbeat beat;
               beat.set_address(address);
               beat.set_version(std::string(kVersion));
               beat.set_device(info.name);
               beat.set_kernel(info.kernel);
               beat.set_transport(transport.name);
               beat.set_self_test(std::string(self_test.message()));
               beat.set_memory_limit_bytes(memory.limit());
               beat.set_memory_used_bytes(memory.used());
               beat.set_memory_resident_bytes(ResidentBytes());
               beat.set_draining(draining);
               beat.set_http_port(http_port);
               beat.set_threads(info.threads);
               beat.set_express_lanes(static_cast<int>(devices.express.size()));
               beat.set_model_memory_bytes(models.limit());
               beat.set_bfloat16_products(bfloat16_products);
               if (scan) scan->AddTo(beat);
               beat.set_data_mark(data_mark.mark());
               for (const double seconds : calls.TakeCancelled()) beat.add_cancel_seconds(seconds);
               for (v1::RunFailure& failure : calls.TakeFailures())
                 *beat.add_failures() = std::move(failure);
               return beat;
             },
         .up =
             [&] {
               registered = true;
               metrics.CountRegistration();
               set_ready(true);
               if (draining) set_ready(false);
             },
         .lost =
             [&] {
               registered = false;
               set_ready(false);
               calls.CancelAll();
               rings.CloseAll();
             },
         .data_mark_file = [&](const std::string& file) { data_mark.Look(file); }},
        std::move(calling));
    data_mark.SetOnChange([&registration] { registration.BeatNow(); });
    calls.SetOnFailure([&registration] { registration.BeatNow(); });
    AwaitStopSignal(std::nullopt);
    LimitStop(settings.exit_timeout + kEndLimit);
    draining = true;
    set_ready(false);
    registration.BeatNow();
    spdlog::info("stopping: {} jobs run", calls.count());
    AwaitDrained(calls, settings.exit_timeout);
    calls.SetOnFailure(nullptr);
    data_mark.SetOnChange(nullptr);
  }
  spdlog::info("stopped");
  grpc.Shutdown(std::chrono::milliseconds(100));
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
