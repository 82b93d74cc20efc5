#include "tests/unit/job/fake_worker.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/plan/plan.h"
#include "engine/plan/shard_layout.h"
#include "grpcpp/server_builder.h"
#include "server/shard/output_rows.h"
#include "server/shard/shared_memory.h"
#include "server/worker/message_rows.h"
#include "tests/support/manual_time.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using server::OutputRows;
using server::SharedMemory;

void Place(const v1::ShardRows& rows, const HostShard& shard) {
  const TensorKind tensor = *wire::TensorKindOf(rows.tensor());
  const int64_t row_bytes = shard.layout().RowBytes(tensor);
  for (int64_t i = 0; i < rows.rows(); ++i) {
    const int64_t row = rows.local_rows_size() > 0 ? rows.local_rows(static_cast<int>(i))
                                                   : rows.first_local_row() + i;
    std::memcpy(shard.Row(tensor, row), rows.payload().data() + i * row_bytes, row_bytes);
  }
}

void Compute(const HostShard& shard, float error) {
  const int64_t count = shard.rows() * shard.layout().RowBytes(TensorKind::kV) / sizeof(float);
  const auto* const v = reinterpret_cast<const float*>(shard.Row(TensorKind::kV, 0));
  auto* const out = reinterpret_cast<float*>(shard.Row(TensorKind::kOut, 0));
  for (int64_t i = 0; i < count; ++i) out[i] = v[i] + error;
}

}  // namespace

FakeWorker::FakeWorker(std::string address) : address_(std::move(address)) {
  grpc::ServerBuilder builder;
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeWorker::~FakeWorker() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::shared_ptr<grpc::Channel> FakeWorker::Channel() { return server_->InProcessChannel({}); }

void FakeWorker::At(Moment moment, Action action) {
  const std::lock_guard lock(mutex_);
  actions_[moment] = std::move(action);
}

void FakeWorker::AtEach(Moment moment, Action action) {
  const std::lock_guard lock(mutex_);
  each_[moment] = std::move(action);
}

std::vector<v1::RunOpen> FakeWorker::opens() const {
  const std::lock_guard lock(mutex_);
  return opens_;
}

void FakeWorker::AtEachRing(RingAction action) {
  const std::lock_guard lock(mutex_);
  at_each_ring_ = std::move(action);
}

void FakeWorker::AtRing(RingAction action) {
  const std::lock_guard lock(mutex_);
  at_ring_ = std::move(action);
}

grpc::Status FakeWorker::PrepareRing(grpc::ServerContext* context,
                                     const v1::PrepareRingRequest* request,
                                     v1::PrepareRingResponse* response) {
  response->set_blob(absl::StrCat(request->ring_id(), "/", request->generation()) + '\0');
  RingAction action;
  {
    const std::lock_guard lock(mutex_);
    action = std::exchange(at_ring_, nullptr);
    if (action == nullptr) action = at_each_ring_;
  }
  return action == nullptr ? grpc::Status::OK : action(*context, *request);
}

grpc::Status FakeWorker::ConnectRing(grpc::ServerContext*, const v1::ConnectRingRequest*,
                                     v1::ConnectRingResponse*) {
  ++rings_;
  return grpc::Status::OK;
}

grpc::Status FakeWorker::CloseRing(grpc::ServerContext*, const v1::CloseRingRequest*,
                                   v1::CloseRingResponse*) {
  return grpc::Status::OK;
}

std::optional<grpc::Status> FakeWorker::Reach(Moment moment, const Here& here) {
  Action action;
  {
    const std::lock_guard lock(mutex_);
    if (const auto once = actions_.extract(moment)) {
      action = once.mapped();
    } else if (const auto each = each_.find(moment); each != each_.end()) {
      action = each->second;
    } else {
      return std::nullopt;
    }
  }
  return action(here);
}

grpc::Status FakeWorker::Run(grpc::ServerContext* context, Stream* stream) {
  v1::RunRequest request;
  if (!stream->Read(&request) || !request.has_open()) return grpc::Status::CANCELLED;
  const v1::RunOpen open = request.open();
  ++runs_;
  {
    const std::lock_guard lock(mutex_);
    opens_.push_back(open);
  }
  const Here here{*stream, *context, open};
  if (auto end = Reach(Moment::kOpened, here)) return *end;
  const Plan plan = *MakePlan(*wire::DecodeJobSpec(open.spec()), open.workers());
  const ShardLayout layout(plan, open.rank());
  std::shared_ptr<SharedMemory> shared;
  std::vector<std::byte> own;
  if (open.has_shared_memory() && !turns_down_) {
    shared = *SharedMemory::Open(open.shared_memory());
  } else {
    own.resize(layout.bytes());
  }
  const HostShard shard(shared ? shared->data() : own.data(), layout);

  v1::RunResponse response;
  bool done = open.rows_there() && shared != nullptr;
  if (done && whole_) {
    if (auto end = Reach(Moment::kRowsDone, here)) return *end;
    Compute(shard, error_);
    response.mutable_whole()->mutable_computed()->set_seconds(1e-3);
    response.mutable_whole()->mutable_figures()->set_tokens(shard.rows());
    stream->Write(response);
    if (auto end = Reach(Moment::kFigures, here)) return *end;
    return grpc::Status::OK;
  }
  response.mutable_ready()->set_shares_memory(shared != nullptr);
  stream->Write(response);
  if (auto end = Reach(Moment::kReady, here)) return *end;
  while (!done && stream->Read(&request)) {
    if (request.has_rows()) Place(request.rows(), shard);
    if (request.has_arrived()) arrived_ = request.arrived().rows();
    done = request.has_done();
    if (done || request.has_order()) continue;
    if (auto end = Reach(Moment::kFed, here)) return *end;
  }
  if (!done) return grpc::Status::CANCELLED;
  if (auto end = Reach(Moment::kRowsDone, here)) return *end;
  Compute(shard, error_);

  OutputRows outputs(plan, open.rank(), server::SourceOf(shard), open.want_lse(),
                     server::DeliveredOf(open, plan.spec.tokens));
  for (const auto& [rows, moment] :
       {std::pair(shard.rows() / 2, Moment::kHalfOut), std::pair(shard.rows(), Moment::kAllOut)}) {
    if (shared != nullptr) {
      response.mutable_final()->set_rows(rows);
      stream->Write(response);
    } else {
      std::string_view payload;
      while (outputs.Next(rows, *response.mutable_output(), payload)) {
        response.mutable_output()->set_payload(std::string(payload));
        response.set_first_slot(outputs.first_slot());
        stream->Write(response);
      }
      response.clear_first_slot();
    }
    if (auto end = Reach(moment, here)) return *end;
  }
  response.mutable_computed()->set_seconds(1e-3);
  stream->Write(response);
  if (auto end = Reach(Moment::kComputed, here)) return *end;
  response.mutable_figures()->set_tokens(shard.rows());
  stream->Write(response);
  if (auto end = Reach(Moment::kFigures, here)) return *end;
  return grpc::Status::OK;
}

std::optional<grpc::Status> Hold::State::Wait(grpc::ServerContext& context) {
  std::unique_lock lock(mutex);
  held = true;
  while (!released && !context.IsCancelled()) {
    changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  if (released) return end;
  cancelled = true;
  return grpc::Status::CANCELLED;
}

FakeWorker::Action Hold::action() {
  return [state = state_](const FakeWorker::Here& here) { return state->Wait(here.context); };
}

FakeWorker::RingAction Hold::ring_action() {
  return [state = state_](grpc::ServerContext& context, const v1::PrepareRingRequest&) {
    return state->Wait(context).value_or(grpc::Status::OK);
  };
}

bool Hold::held() const {
  const std::lock_guard lock(state_->mutex);
  return state_->held;
}

bool Hold::cancelled() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cancelled;
}

bool Hold::AwaitHeld() {
  return Eventually([this] { return held(); });
}

void Hold::Release(std::optional<grpc::Status> end) {
  const std::lock_guard lock(state_->mutex);
  state_->end = std::move(end);
  state_->released = true;
  state_->changed.notify_all();
}

FakeWorker::Action Break() {
  return [](const FakeWorker::Here&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  };
}

FakeWorker::Action Say(const absl::Status& status, const std::string& reason) {
  return [end = wire::ToGrpc(wire::WithReason(status, reason))](const FakeWorker::Here&) {
    return end;
  };
}

FakeWorker::Action Write(std::function<void(v1::RunResponse&)> fill) {
  return [fill = std::move(fill)](const FakeWorker::Here& here) -> std::optional<grpc::Status> {
    v1::RunResponse response;
    fill(response);
    here.stream.Write(response);
    return std::nullopt;
  };
}

}  // namespace hilbert_ring::testing
