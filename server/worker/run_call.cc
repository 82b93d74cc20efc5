#include "server/worker/run_call.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/process/process_memory.h"
#include "server/worker/output_rows.h"
#include "server/worker/shard_rows.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPoll{10};  // until a cancellation is seen
constexpr milliseconds kProgressInterval{200};
constexpr std::chrono::seconds kTurnTimeout{50};  // a cancelled job ends within a tile

absl::Status Cancelled() { return absl::CancelledError("the coordinator cancelled the job"); }

absl::Status UnexpectedMessage(const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected));
}

}  // namespace

absl::Status RunCall::Serve() {
  if (absl::Status status = Open(); !status.ok()) return status;
  std::unique_lock turn(state_.turn, std::defer_lock);
  if (absl::Status status = AwaitTurn(turn); !status.ok()) return status;
  idle_bytes_ = ResidentBytes();
  absl::Status status = Allocate();
  if (status.ok()) status = ReceiveRows();
  TrimMalloc();  // messages
  if (status.ok()) status = Compute();
  if (status.ok()) status = SendOutputs();
  if (status.ok()) status = SendFigures();
  // Before the next job's turn.
  ring_.reset();
  store_.reset();
  reservation_.reset();
  TrimMalloc();
  const auto level =
      status.ok() || absl::IsCancelled(status) ? spdlog::level::debug : spdlog::level::warn;
  spdlog::log(level, "job {}, rank {}: {}", open_.job_id(), rank_, status.ToString());
  return status;
}

absl::Status RunCall::Open() {
  v1::RunRequest request;
  if (!stream_.Read(&request) || !request.has_open()) return UnexpectedMessage("RunOpen first");
  open_ = std::move(*request.mutable_open());
  rank_ = open_.rank();
  if (open_.incarnation() != state_.incarnation) {
    return wire::WithReason(
        absl::FailedPreconditionError("this worker is not the incarnation that is meant"),
        "STALE_INCARNATION");
  }
  if (open_.workers() < 1 || open_.workers() > kMaxWorkers || rank_ < 0 ||
      rank_ >= open_.workers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", rank_, ", workers is ", open_.workers()));
  }
  auto spec = wire::DecodeJobSpec(open_.spec());
  if (!spec.ok()) return spec.status();
  open_.clear_spec();
  if (absl::Status status = Validate(*spec); !status.ok()) return status;
  std::vector<ShardRange> ranges;
  for (const v1::ShardRange& shard : open_.shards()) {
    ranges.push_back({.begin = shard.begin(), .end = shard.end(), .rank = shard.rank()});
  }
  auto shards = Shards::Make(spec->tokens, open_.workers(), std::move(ranges));
  if (!shards.ok()) return shards.status();
  auto plan = MakePlan(*spec, *std::move(shards));
  if (!plan.ok()) return plan.status();
  plan_ = *std::move(plan);
  return absl::OkStatus();
}

absl::Status RunCall::AwaitTurn(std::unique_lock<std::timed_mutex>& turn) {
  const Deadline deadline = std::chrono::steady_clock::now() + kTurnTimeout;
  while (!turn.try_lock_for(kPoll)) {
    if (context_.IsCancelled()) return Cancelled();
    if (std::chrono::steady_clock::now() > deadline) {
      return wire::WithReason(
          absl::UnavailableError("the job before this one has not ended in time"), "WORKER_BUSY");
    }
  }
  return absl::OkStatus();
}

absl::Status RunCall::Allocate() {
  auto reservation = state_.memory.Reserve(plan_->costs.workers[rank_].resident_bytes());
  if (!reservation.ok()) return reservation.status();
  reservation_.emplace(*std::move(reservation));
  if (plan_->costs.steps > 0) {
    auto ring = state_.rings.Take(open_.ring_id(), open_.generation());
    if (!ring.ok()) return ring.status();
    ring_.emplace(*std::move(ring));
    transport_ = ring_->communicator()->name();
  }
  auto store = ShardStore::Make(state_.device, *plan_, rank_);
  if (!store.ok()) return wire::WithReason(store.status(), "WORKER_MEMORY");
  store_ = *std::move(store);
  v1::RunResponse response;
  response.mutable_ready();
  return Send(response);
}

absl::Status RunCall::ReceiveRows() {
  ShardRows rows(*plan_, *store_);
  v1::RunRequest request;
  while (stream_.Read(&request)) {
    absl::Status status;
    switch (request.message_case()) {
      case v1::RunRequest::kOrder:
        status = rows.Place(request.order());
        break;
      case v1::RunRequest::kRows:
        status = rows.Place(request.rows());
        break;
      case v1::RunRequest::kDone:
        return rows.CheckComplete();
      default:
        status = UnexpectedMessage("an order part, rows or RowsDone");
    }
    if (!status.ok()) return status;
  }
  return Cancelled();
}

absl::Status RunCall::Compute() {
  const Deadline deadline =
      open_.compute_timeout_ms() > 0
          ? std::chrono::steady_clock::now() + milliseconds(open_.compute_timeout_ms())
          : Deadline::max();
  auto figures = ExecuteOnThread(deadline);
  if (context_.IsCancelled()) return Cancelled();
  if (!figures.ok()) {
    return absl::IsDeadlineExceeded(figures.status())
               ? wire::WithReason(figures.status(), "JOB_TIMEOUT")
               : figures.status();
  }
  figures_ = *figures;
  if (ring_) {
    ring_->Finish(plan_->costs.steps);
    ring_.reset();
  }
  return absl::OkStatus();
}

// This thread meanwhile tells progress and watches for cancellation.
absl::StatusOr<Figures> RunCall::ExecuteOnThread(Deadline deadline) {
  std::atomic<bool> cancelled = false;
  std::atomic<double> fraction = 0;
  std::mutex mutex;
  std::condition_variable ended_changed;
  bool ended = false;  // guarded by mutex
  absl::StatusOr<Figures> figures = absl::InternalError("not run");
  const ExecuteControl control{.deadline = deadline,
                               .cancelled = [&] { return cancelled.load(); },
                               .progress =
                                   [&](double done) {
                                     fraction = done;
                                     // The last call comes when all is computed and all buffers are
                                     // still there.
                                     if (done >= 1.0) resident_bytes_ = ResidentBytes();
                                   }};
  std::thread executor([&] {
    figures =
        Execute(*plan_, rank_, *store_, state_.device, ring_ ? ring_->communicator() : nullptr,
                ring_ ? ring_->first_step() : 1, control);
    const std::lock_guard lock(mutex);
    ended = true;
    ended_changed.notify_all();
  });
  auto told = std::chrono::steady_clock::now();
  double told_fraction = 0;
  std::unique_lock lock(mutex);
  while (!ended_changed.wait_for(lock, kPoll, [&] { return ended; })) {
    if (context_.IsCancelled() && !cancelled.exchange(true) && ring_) {
      ring_->communicator()->Abort("the job was cancelled");
    }
    const auto now = std::chrono::steady_clock::now();
    const double done = fraction;
    if (cancelled || now - told < kProgressInterval || done <= told_fraction) continue;
    told = now;
    told_fraction = done;
    lock.unlock();
    v1::RunResponse response;
    response.mutable_progress()->set_fraction(done);
    stream_.Write(response);  // one that fails shows as a cancellation
    lock.lock();
  }
  lock.unlock();
  executor.join();
  return figures;
}

absl::Status RunCall::SendOutputs() {
  OutputRows rows(*plan_, rank_, *store_, open_.want_lse());
  v1::RunResponse response;
  while (rows.Next(*response.mutable_output())) {
    if (absl::Status status = Send(response); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RunCall::SendFigures() {
  const WorkerCost& cost = plan_->costs.workers[rank_];
  const DeviceInfo info = state_.device.info();
  v1::RunResponse response;
  v1::WorkerReport& report = *response.mutable_figures();
  report.set_device(info.name);
  report.set_kernel(info.kernel);
  report.set_transport(transport_);
  report.set_tokens(cost.tokens);
  report.set_memory_peak_bytes(figures_.memory_peak_bytes);
  report.set_memory_predicted_bytes(cost.resident_bytes());
  report.set_memory_resident_bytes(std::max<int64_t>(0, resident_bytes_ - idle_bytes_));
  report.set_flops(figures_.flops);
  report.set_flops_predicted(cost.flops);
  report.set_compute_seconds(figures_.compute_seconds);
  report.set_exchange_seconds(figures_.exchange_seconds);
  report.set_exposed_exchange_seconds(figures_.exposed_exchange_seconds);
  report.set_bytes_sent(figures_.bytes_sent);
  report.set_bytes_received(figures_.bytes_received);
  report.set_bytes_received_predicted(cost.bytes_received);
  return Send(response);
}

absl::Status RunCall::Send(const v1::RunResponse& response) {
  return stream_.Write(response) ? absl::OkStatus() : Cancelled();
}

}  // namespace hilbert_ring::server
