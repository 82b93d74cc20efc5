#include "server/coordinator/warm_up.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "server/coordinator/attention_service.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Enough for each worker to have rows, and each to need those of the others.
constexpr int64_t kTokensOfAWorker = 32;
constexpr int64_t kHeads = 2, kHeadDim = 16;
constexpr int64_t kCopyBytes = int64_t{64} << 20;  // more than any such job has
constexpr auto kTimeout = std::chrono::seconds(60);
// After one that failed: twice as long each time that the reason is the same.
constexpr std::chrono::milliseconds kPause(500), kLongestPause(8000);

JobSpec SpecFor(int workers) {
  JobSpec spec;
  spec.tokens = kTokensOfAWorker * workers;
  spec.heads = spec.kv_heads = kHeads;
  spec.head_dim = spec.value_dim = kHeadDim;
  spec.dtype = DataType::kFloat32;
  spec.branches = {{.segment = spec.tokens, .dilation = 1}};
  spec.mixing = Mixing::kLse;
  return spec;
}

int RowsToCheck(const JobSpec& spec) {
  constexpr int64_t kMost = 256;
  return static_cast<int>(std::min(spec.tokens, kMost));
}

v1::AttendRequest RowsOf(const JobSpec& spec, v1::Tensor tensor, std::minstd_rand& random) {
  std::vector<float> values(spec.tokens * wire::TensorRowBytes(spec, tensor) / sizeof(float));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : values) value = uniform(random);
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  chunk.set_tensor(tensor);
  chunk.set_rows(spec.tokens);
  chunk.set_payload(values.data(), values.size() * sizeof(float));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  return request;
}

// Outputs are dropped: the service has computed them again by the time of its report.
absl::Status Call(v1::AttentionService::Stub& stub, const JobSpec& spec, int workers,
                  grpc::ClientContext& context) {
  const auto stream = stub.Attend(&context);
  v1::AttendRequest open;
  *open.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  open.mutable_open()->set_job_id("warm-up");
  stream->Write(open);  // a failure shows in Finish
  std::minstd_rand random;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    stream->Write(RowsOf(spec, tensor, random));
  }
  stream->WritesDone();
  v1::AttendResponse response;
  v1::Report report;
  while (stream->Read(&response)) {
    if (response.has_report()) report = std::move(*response.mutable_report());
  }
  if (absl::Status status = wire::FromGrpc(stream->Finish()); !status.ok()) return status;
  if (report.workers_size() != workers) {
    return absl::UnavailableError(
        absl::StrCat("it could be computed on ", report.workers_size(), " of them alone"));
  }
  if (report.rows_checked() != RowsToCheck(spec)) {
    return absl::InternalError("too few of its rows could be checked");
  }
  return absl::OkStatus();
}

}  // namespace

struct WarmUp::Server {
  Server(const JobServices& services, Callers& callers)
      : short_calls(services.metrics, limits),
        calls(services, callers),
        service(services, callers, calls, short_calls, plans, [] { return false; }) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
  }
  ~Server() {
    if (server == nullptr) return;
    server->Shutdown();
    server->Wait();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  PlanGate plans{1};
  CallLimits limits{1};  // which nobody counts
  ShortCalls short_calls;
  JobCalls calls;
  AttentionService service;
  std::unique_ptr<grpc::Server> server;
};

WarmUp::WarmUp(const JobServices& services, std::function<void()> passed)
    : settings_(services.settings),
      copies_(kCopyBytes),
      services_{.settings = settings_,
                .membership = services.membership,
                .scheduler = services.scheduler,
                .rate = services.rate,
                .jobs = jobs_,
                .quotas = quotas_,
                .rings = services.rings,
                .runs = services.runs,
                .orders = services.orders,
                .models = services.models,
                .shards = services.shards,
                .threads = services.threads,
                .copies = copies_,
                .order_memory = services.order_memory,
                .plans = services.plans,
                .metrics = metrics_,
                .suspects = services.suspects,
                .model_steps = services.model_steps,
                .data_steps = services.data_steps,
                .data_root = no_root_},
      passed_(std::move(passed)) {
  settings_.max_retries = 0;  // a worker that fails is not to be left out
  // Limits are for callers.
  settings_.max_tokens = kTokensOfAWorker * kMaxWorkers;
  settings_.max_heads = kHeads;
  server_ = std::make_unique<Server>(services_, callers_);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

WarmUp::~WarmUp() = default;

void WarmUp::Begin(int workers) {
  const MutexLock lock(mutex_);
  workers_ = workers;
  ++begun_;
  changed_.notify_all();
}

void WarmUp::Run(const std::stop_token& stop) {
  std::string told;
  std::chrono::milliseconds pause = kPause;
  while (true) {
    int workers = 0;
    int64_t begun = 0;
    {
      MutexLock lock(mutex_);
      if (!changed_.wait(lock, stop,
                         [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return workers_ > 0; })) {
        return;
      }
      workers = workers_;
      begun = begun_;
    }
    const absl::Status status = Try(workers, stop);
    if (stop.stop_requested()) return;
    if (status.ok()) {
      server_.reset();
      return passed_();
    }
    const std::string why(status.message());
    pause = std::min(2 * pause, kLongestPause);
    if (std::exchange(told, why) != why) {
      pause = kPause;
      spdlog::warn("the warm-up job over {} workers failed, and is tried again: {}", workers, why);
    }
    MutexLock lock(mutex_);
    changed_.wait_for(lock, stop, pause, [this, begun]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return begun_ != begun;
    });
  }
}

absl::Status WarmUp::Try(int workers, const std::stop_token& stop) {
  const JobSpec spec = SpecFor(workers);
  settings_.job_workers = workers;
  settings_.check_rows = RowsToCheck(spec);
  if (server_->server == nullptr) {
    return absl::UnavailableError("its server could not be started");
  }
  const auto stub = v1::AttentionService::NewStub(server_->server->InProcessChannel({}));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  absl::Status status = Call(*stub, spec, workers, context);
  server_->calls.AwaitIdle(kTimeout);  // before the next try changes settings_
  return status;
}

}  // namespace hilbert_ring::server
