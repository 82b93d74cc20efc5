#include "server/worker/run_call.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "server/process/deadline.h"
#include "server/process/logging.h"
#include "server/process/process_memory.h"
#include "server/shard/run_message.h"
#include "server/worker/broken_device.h"
#include "server/worker/delivered_rows.h"
#include "server/worker/store_outputs.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPoll{10};  // until a cancellation is seen
constexpr std::chrono::seconds kMemoryTimeout{5};
constexpr std::chrono::seconds kTurnTimeout{50};  // a cancelled job ends within a tile
constexpr double kShortFlops = 5e8;               // some milliseconds of a processor

absl::Status WithTimeout(const absl::Status& error) {
  return absl::IsDeadlineExceeded(error) ? wire::WithReason(error, wire::reason::kJobTimeout)
                                         : error;
}

}  // namespace

absl::Status RunCall::UnexpectedMessage(const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected));
}

absl::Status RunCall::Malformed() {
  return absl::InvalidArgumentError("a message of the Run stream is no RunRequest");
}

absl::Status RunCall::Cancelled() {
  return absl::CancelledError("the coordinator cancelled the job");
}

absl::Status RunCall::Serve() {
  RETURN_IF_ERROR(Open());
  // A file system that does not answer keeps this call, and not the device.
  absl::Status status = OpenFiles();
  if (status.ok()) status = work_->Read([this] { return look_.IsCancelled(); });
  if (status.ok()) {
    ASSIGN_OR_RETURN(turn_, AwaitTurn());
    idle_bytes_ = ResidentBytes();
    status = Allocate();
  }
  if (status.ok()) {
    status = short_ ? WorkAlone() : Work();
  }
  // Before the next job's turn, and all of it before that job can reserve it.
  output_.reset();
  ring_.reset();
  if (files_ != nullptr) {
    file_bytes_read_ = files_->bytes_read();
    file_bytes_written_ = files_->bytes_written();
  }
  files_.reset();
  store_.reset();
  shared_.reset();
  const WorkerCost cost = work_->cost();
  work_.reset();
  TrimMalloc(cost.resident_bytes());
  reservation_.reset();
  if (cancelled_at_) {
    state_.calls.NoteCancelled(SecondsBetween(*cancelled_at_, Clock::now()));
  }
  CountEnd(status, cost);
  const auto level =
      status.ok() || absl::IsCancelled(status) ? spdlog::level::debug : spdlog::level::warn;
  LogEvent(level, "run ended",
           {{"job", open_.job_id()},
            {"rank", int64_t{rank_}},
            {"code", absl::StatusCodeToString(status.code())},
            {"error", std::string(status.message())},
            {"traceparent", open_.traceparent()}});
  turn_.reset();
  return status;
}

std::optional<Deadline> RunCall::RowsDone() {
  const MutexLock lock(mutex_);
  return rows_done_;
}

void RunCall::CountEnd(const absl::Status& status, const WorkerCost& cost) {
  if (state_.metrics == nullptr) return;
  state_.metrics->CountRun(status.code());
  if (cancelled_at_) {
    state_.metrics->ObserveCancel(SecondsBetween(*cancelled_at_, Clock::now()));
  }
  const std::optional<Deadline> rows_done = RowsDone();
  if (!status.ok() || !figures_.ok() || !rows_done) return;
  state_.metrics->ObserveRun({.transport = transport_,
                              .tokens = cost.tokens,
                              .flops = figures_->flops,
                              .flops_planned = cost.flops,
                              .receive_seconds = SecondsBetween(ready_, *rows_done),
                              .compute_seconds = figures_->compute_seconds,
                              .exchange_seconds = figures_->exchange_seconds,
                              .exposed_exchange_seconds = figures_->exposed_exchange_seconds,
                              .bytes_sent = figures_->bytes_sent,
                              .bytes_received = figures_->bytes_received,
                              .bytes_received_planned = cost.bytes_received,
                              .memory_peak_bytes = figures_->memory_peak_bytes,
                              .memory_predicted_bytes = cost.resident_bytes(),
                              .file_bytes_read = file_bytes_read_,
                              .file_bytes_written = file_bytes_written_});
}

absl::Status RunCall::Open() {
  RunMessage<v1::RunRequest> message;
  v1::RunRequest& request = message.fields;
  const bool came = stream_.Read(&message.buffer);
  if (place_ != nullptr && !place_->Open()) return place_->why();
  if (came && !Split(message)) return Malformed();
  if (!came || !request.has_open()) return UnexpectedMessage("RunOpen first");
  const Deadline opened = std::chrono::steady_clock::now();
  open_ = std::move(*request.mutable_open());
  rank_ = open_.rank();
  if (open_.workers() < 1 || open_.workers() > kMaxWorkers || rank_ < 0 ||
      rank_ >= open_.workers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", rank_, ", workers is ", open_.workers()));
  }
  if (open_.lane() < 0 || open_.lane() >= std::ssize(state_.lanes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("lane is ", open_.lane(), ", this worker has ", state_.lanes.size()));
  }
  lane_ = &state_.lanes[static_cast<size_t>(open_.lane())];
  if (!open_.has_encode()) {
    ASSIGN_OR_RETURN(work_, MakeAttentionRun(open_));
  } else if (state_.make_encode) {
    ASSIGN_OR_RETURN(work_, state_.make_encode(open_, lane_->device().info().threads));
  } else {
    return wire::ErrorOf(wire::reason::kModelNotFound, "this worker has no models (--model-dir)");
  }
  if (open_.want_trace()) spans_.emplace(opened, open_.workers());
  open_.clear_spec();
  open_.clear_encode();
  return absl::OkStatus();
}

absl::Status RunCall::OpenFiles() {
  if (open_.files_size() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(files_, ShardFiles::Open(state_.data_root, open_, *work_));
  return absl::OkStatus();
}

absl::StatusOr<Lane::Turn> RunCall::AwaitTurn() {
  const Deadline deadline = std::chrono::steady_clock::now() + kTurnTimeout;
  while (true) {
    if (Lane::Turn turn = lane_->AwaitTurn(kPoll)) return turn;
    if (context_.IsCancelled()) return Cancelled();
    if (std::chrono::steady_clock::now() > deadline) {
      return wire::ErrorOf(wire::reason::kWorkerBusy,
                           "the job before this one has not ended in time");
    }
  }
}

absl::Status RunCall::Allocate() {
  // A job of another lane that was given up may still have its memory for a moment.
  const int64_t bytes = work_->cost().resident_bytes();
  const Deadline deadline = std::chrono::steady_clock::now() + kMemoryTimeout;
  auto reservation = state_.memory.Reserve(bytes);
  while (!reservation.ok() && bytes <= state_.memory.limit() &&
         std::chrono::steady_clock::now() < deadline) {
    if (context_.IsCancelled()) return Cancelled();
    std::this_thread::sleep_for(kPoll);
    reservation = state_.memory.Reserve(bytes);
  }
  RETURN_IF_ERROR(reservation.status());
  reservation_.emplace(*std::move(reservation));
  const Plan& plan = work_->plan();
  if (plan.costs.steps > 0) {
    ASSIGN_OR_RETURN(auto ring, state_.rings.Take(open_.ring_id(), open_.generation()));
    ring_.emplace(std::move(ring));
    transport_ = ring_->communicator()->name();
  }
  RETURN_IF_ERROR(MakeStore());
  if (files_ != nullptr) files_->Use(*store_);
  absl::Status prepared = work_->Prepare(lane_->device(), [this] { return look_.IsCancelled(); });
  if (!prepared.ok()) return wire::WithReason(prepared, wire::reason::kWorkerMemory);
  ASSIGN_OR_RETURN(Delivered delivered, DeliveredOf(open_, plan.spec.tokens));
  output_.emplace(plan, rank_, SourceOf(*store_), open_.want_lse(), std::move(delivered));
  ready_ = std::chrono::steady_clock::now();
  short_ = IsShort();
  whole_ = short_ && open_.rows_there();
  if (whole_) return absl::OkStatus();
  v1::RunResponse response;
  response.mutable_ready()->set_shares_memory(shared_ != nullptr);
  return Send(response);
}

// In the coordinator's memory if it offers some and this process can reach it.
absl::Status RunCall::MakeStore() {
  const ShardLayout layout(work_->plan(), rank_);
  if (state_.share_memory && open_.has_shared_memory() &&
      open_.shared_memory().bytes() >= layout.bytes()) {
    auto shared = SharedMemory::Open(open_.shared_memory());
    if (shared.ok()) {
      shared_ = *std::move(shared);
      store_ = ShardStore::Over(HostShard(shared_->data(), layout));
      return absl::OkStatus();
    }
    spdlog::info("job {}, rank {}: rows come by the stream: {}", open_.job_id(), rank_,
                 std::string(shared.status().message()));
  }
  auto store = ShardStore::Make(lane_->device(), work_->plan(), rank_);
  if (!store.ok()) return wire::WithReason(store.status(), wire::reason::kWorkerMemory);
  store_ = *std::move(store);
  return absl::OkStatus();
}

// Nothing is exchanged, sent or awaited once its rows are there.
bool RunCall::IsShort() const {
  return shared_ != nullptr && files_ == nullptr && work_->plan().costs.steps == 0 &&
         !work_->shape().rows.Has(TensorKind::kTiles) && work_->cost().flops <= kShortFlops;
}

absl::Status RunCall::WorkAlone() {
  absl::Status received = ReceiveRows();
  if (!received.ok()) {
    NoteCancelled();
    return received;
  }
  Execute();
  if (look_.IsCancelled()) {
    NoteCancelled();
    return Cancelled();
  }
  SendNews();
  if (!figures_.ok()) return WithTimeout(figures_.status());
  const MutexLock sending(sending_);
  return sent_;
}

// Notes figures or failure.
void RunCall::Execute() {
  absl::StatusOr<Figures> figures = ExecuteJob();
  const Deadline ended = std::chrono::steady_clock::now();
  if (state_.device_broken && IsBroken(lane_->device(), figures.status())) {
    state_.device_broken(figures.status());
  }
  const MutexLock lock(mutex_);
  figures_ = std::move(figures);
  executed_ = true;
  if (rows_done_) {
    compute_seconds_ = SecondsBetween(*rows_done_, ended);
  }
}

absl::Status RunCall::Work() {
  auto sender = state_.threads.Start([this] { SendUntilExecuted(); });
  auto executor = state_.threads.Start([this] {
    Execute();
    if (files_ != nullptr) turn_.reset();  // what is left is the disk's, which may hang
    if (shared_ != nullptr && files_ == nullptr) SendNews();
    changed_.notify_all();
    TellFailure();
  });
  absl::Status received = ReceiveRows();
  if (!received.ok()) {
    NoteCancelled();
    arrived_.Close(received);
    const MutexLock sending(sending_);
    if (files_ != nullptr && !all_sent_) SendFailed(received);
  }
  if (shared_ == nullptr) TrimMalloc(work_->cost().resident_bytes());  // of messages
  AwaitExecuted();
  executor.Join();
  if (figures_.ok() && ring_) {
    ring_->Finish(work_->plan().costs.steps);
    ring_.reset();
  }
  sender.Join();
  RETURN_IF_ERROR(received);
  if (context_.IsCancelled()) return Cancelled();
  if (files_ != nullptr) {
    const MutexLock sending(sending_);
    RETURN_IF_ERROR(sent_);
  }
  if (!figures_.ok()) return WithTimeout(figures_.status());
  const MutexLock sending(sending_);
  return sent_;
}

void RunCall::NoteCancelled() {
  if (!cancelled_at_) cancelled_at_ = std::chrono::steady_clock::now();
  cancelled_ = true;
}

// In the executing thread.
absl::StatusOr<Figures> RunCall::ExecuteJob() {
  ExecuteControl control{
      .deadline = [this] { return compute_due_.load(); },
      // Another thread looks, unless there is none or it may hang in a file.
      .cancelled =
          [this] {
            return cancelled_.load() || ((short_ || files_ != nullptr) && look_.IsCancelled());
          },
      .progress =
          [this](double done) {
            // The last call comes when all is computed and all buffers are still
            // there.
            if (done >= 1.0) resident_bytes_ = ResidentBytes();
            const MutexLock lock(mutex_);
            news_.fraction = std::max(news_.fraction, done);  // threads tell in any order
          },
      .waiting =
          [this](int64_t step) {
            const MutexLock lock(mutex_);
            news_.waiting_step = step;
          },
      .await_rows = [this](int64_t rows) { return AwaitRows(rows); },
      .rows_final =
          [this](int64_t rows) {
            {
              const MutexLock lock(mutex_);
              news_.rows_final = rows;
            }
            if (shared_ == nullptr || files_ != nullptr) {
              changed_.notify_all();
            } else if (!whole_ && rows < store_->rows()) {
              SendNews();
            }
          }};
  WorkControl work{.layer = [this](int64_t layer) {
    const MutexLock lock(mutex_);
    news_.layer = layer;
  }};
  if (shared_ != nullptr && open_.shared_memory().used()) {
    std::memset(store_->Row(TensorKind::kOut, 0), 0,
                static_cast<size_t>(store_->rows() * store_->layout().RowBytes(TensorKind::kOut)));
  }
  work.execute = std::move(control);
  if (spans_) spans_->NoteIn(work);
  return work_->Execute(*store_, lane_->device(), ring_ ? ring_->communicator() : nullptr,
                        ring_ ? ring_->first_step() : 1, work);
}

// Who reads files may not come back to close the gate.
absl::Status RunCall::AwaitRows(int64_t rows) {
  while (files_ != nullptr && !arrived_.AwaitFor(rows, kPoll)) {
    if (context_.IsCancelled()) return Cancelled();
  }
  return arrived_.Await(rows);
}

// Until it has ended; a cancelled call makes it end.
void RunCall::AwaitExecuted() {
  MutexLock lock(mutex_);
  bool told = false;
  while (!changed_.wait_for(lock, kPoll,
                            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return executed_; })) {
    if (told || (!cancelled_ && !context_.IsCancelled())) continue;
    told = true;
    NoteCancelled();
    if (ring_) ring_->communicator()->Abort("the job was cancelled");
  }
}

}  // namespace hilbert_ring::server
