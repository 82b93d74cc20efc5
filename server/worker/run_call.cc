// The course of a run, by phases (run_course.h):
//
//   Open       RunOpen -> its work (run_work.h), with the plan from its shards
//   Read       opens files, reads an encoder's model
//   AwaitLane  its turn on the device
//   Allocate   memory, ring, shard (run_shard.cc) -> RunReady
//   Receive    rows come to the shard; compute begins with the first
//   Compute    runs the plan; final outputs leave (run_call_send.cc)
//   Release    frees all memory
//
// The call's thread receives rows, then watches for cancellation; an executor computes; a sender
// sends. A short run has the call's thread alone.
#include "server/worker/run_call.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/return_if_error.h"
#include "server/process/deadline.h"
#include "server/process/logging.h"
#include "server/process/process_memory.h"
#include "server/worker/worker_device.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPoll{10};  // between two looks at cancellation
constexpr std::chrono::seconds kMemoryTimeout{5};
constexpr std::chrono::seconds kTurnTimeout{50};  // a cancelled job ends within a tile
constexpr double kShortFlops = 5e8;               // some milliseconds of a CPU
constexpr int64_t kPlanningBytes = 64;            // of a sequence, freed once there is a plan

}  // namespace

absl::Status RunCall::Serve() {
  RETURN_IF_ERROR(Open());
  absl::Status status = Read();
  if (status.ok()) status = AwaitLane();
  if (status.ok()) status = Allocate();
  if (!status.ok()) {
    course_.Fail(status);
  } else {
    course_.Enter(RunPhase::kReceiving);
    short_ ? RunAlone() : RunInThreads();
  }
  status = course_.failure();
  if (absl::IsDeadlineExceeded(status)) {
    status = wire::WithReason(status, wire::reason::kJobTimeout);
  }
  Release();
  Count(status);
  const bool is_fault = !status.ok() && !absl::IsCancelled(status);
  LogEvent(is_fault ? spdlog::level::warn : spdlog::level::debug, "run ended",
           {{"job", open_.job_id()},
            {"rank", int64_t{open_.rank()}},
            {"code", absl::StatusCodeToString(status.code())},
            {"error", std::string(status.message())},
            {"traceparent", open_.traceparent()}});
  turn_.reset();
  return status;
}

absl::Status RunCall::Open() {
  {
    RunMessage<v1::RunRequest> message;
    if (!AwaitMessage(message, state_.open_timeout) || !message.fields.has_open()) {
      return absl::InvalidArgumentError("expected RunOpen first");
    }
    open_ = std::move(*message.fields.mutable_open());
  }
  const Deadline opened = Clock::now();
  lane_ = &state_.lanes[static_cast<size_t>(open_.lane())];
  ASSIGN_OR_RETURN(work_, open_.has_encode()
                              ? state_.make_encode(open_, lane_->device().info().threads)
                              : MakeAttentionRun(open_));
  if (open_.want_trace()) spans_.emplace(opened, open_.workers());
  const int64_t sequences = open_.spec().sequence_lengths_size();
  std::unique_ptr<v1::JobSpec>(open_.release_spec()).reset();  // clear_spec() keeps its memory
  std::unique_ptr<v1::EncodeSpec>(open_.release_encode()).reset();
  TrimMalloc(sequences * kPlanningBytes);
  return absl::OkStatus();
}

// A file system that hangs holds this call, but not the device.
absl::Status RunCall::Read() {
  ASSIGN_OR_RETURN(files_, OpenRunFiles(state_.data_root, open_, *work_));
  return work_->Read([this] { return course_.IsStopped(); });
}

absl::Status RunCall::AwaitLane() {
  const Deadline deadline = Clock::now() + kTurnTimeout;
  while ((turn_ = lane_->AwaitTurn(kPoll)) == nullptr) {
    if (course_.IsStopped()) return RunCancelled();
    if (Clock::now() > deadline) {
      return wire::ErrorOf(wire::reason::kWorkerBusy,
                           "the job before this one has not ended in time");
    }
  }
  return absl::OkStatus();
}

absl::Status RunCall::Allocate() {
  idle_bytes_ = ResidentBytes() - ListBytes(work_->plan()) - state_.kept.bytes();
  RETURN_IF_ERROR(Reserve());
  RETURN_IF_ERROR(MakeShard());
  const absl::Status prepared =
      work_->Prepare(lane_->device(), [this] { return course_.IsStopped(); });
  if (!prepared.ok()) return wire::WithReason(prepared, wire::reason::kWorkerMemory);
  short_ = IsShort();
  answers_once_ = short_ && open_.rows_there();
  if (answers_once_) return absl::OkStatus();
  v1::RunResponse response;
  response.mutable_ready()->set_shares_memory(shard_->shared != nullptr);
  return Write(response);
}

// It does not exchange, send or wait once its rows are there. Passing it on to other threads takes
// longer than its compute.
bool RunCall::IsShort() const {
  return shard_->in_place() && work_->plan().costs.steps == 0 &&
         !work_->shape().rows.Has(TensorKind::kTiles) && work_->cost().flops <= kShortFlops;
}

// A cancelled job of another lane may hold its memory for a moment.
absl::Status RunCall::Reserve() {
  const int64_t bytes = work_->cost().resident_bytes();
  const Deadline deadline = Clock::now() + kMemoryTimeout;
  auto reservation = state_.memory.Reserve(bytes);
  while (!reservation.ok() && bytes <= state_.memory.limit() && Clock::now() < deadline) {
    if (course_.IsStopped()) return RunCancelled();
    std::this_thread::sleep_for(kPoll);
    reservation = state_.memory.Reserve(bytes);
  }
  RETURN_IF_ERROR(reservation.status());
  reservation_.emplace(*std::move(reservation));
  return absl::OkStatus();
}

// Without a message by then the call is cancelled.
bool RunCall::AwaitMessage(RunMessage<v1::RunRequest>& message, milliseconds timeout) {
  entry_.ExpectMessageBy(Clock::now() + timeout);
  const bool came = stream_.Read(&message.buffer);
  entry_.ExpectMessageBy(Deadline::max());
  return came && Split(message);
}

absl::Status RunCall::TakeMessages() {
  RunMessage<v1::RunRequest> message;
  while (AwaitMessage(message, state_.feed_timeout)) {
    if (message.fields.has_done()) return absl::OkStatus();
    if (message.fields.has_elsewhere()) continue;
    ASSIGN_OR_RETURN(const int64_t rows, shard_->way->Take(message.fields, message.payload));
    course_.AddRows(rows);
  }
  if (entry_.starved()) {
    spdlog::warn("job {}, rank {}: no rows and no news of them for {} ms (--feed-timeout)",
                 open_.job_id(), open_.rank(), state_.feed_timeout.count());
  }
  return RunCancelled();
}

// Until all rows are there.
absl::Status RunCall::Receive() {
  if (!open_.rows_there() || !shard_->in_shared_memory()) RETURN_IF_ERROR(TakeMessages());
  RETURN_IF_ERROR(shard_->way->FinishInput());
  if (!files_.inputs.empty()) {
    v1::RunResponse response;
    response.mutable_read();
    RETURN_IF_ERROR(Write(response));
  }
  course_.AddAllRows(milliseconds(open_.compute_timeout_ms()));
  return absl::OkStatus();
}

void RunCall::RunAlone() {
  const absl::Status received = Receive();
  received.ok() ? Execute() : course_.EndCompute(received);
  SendNews();
}

void RunCall::RunInThreads() {
  auto sender = state_.threads.Start([this] { SendUntilComputed(); });
  auto executor = state_.threads.Start([this] {
    Execute();
    if (!files_.outputs.empty()) turn_.reset();  // the disk may hang, and needs no device
    if (shard_->in_place()) SendNews();
    course_.Wake();
    NoteFailureBeside();
  });
  const absl::Status received = Receive();
  if (!received.ok()) course_.Fail(received);
  if (!shard_->in_shared_memory()) TrimMalloc(work_->cost().resident_bytes());  // messages
  AwaitComputed();
  executor.Join();
  if (figures_.ok() && shard_->ring) {
    shard_->ring->Finish(work_->plan().costs.steps);
    shard_->ring.reset();
  }
  sender.Join();
}

void RunCall::Execute() {
  figures_ = Compute();
  if (IsBroken(lane_->device(), figures_.status())) EndAtOnce(figures_.status());
  course_.EndCompute(figures_.status());
}

absl::StatusOr<Figures> RunCall::Compute() {
  WorkControl control{
      .execute = {.deadline = [this] { return course_.compute_due(); },
                  .cancelled = [this] { return course_.IsStopped(); },
                  .progress =
                      [this](double done) {
                        // At 1 all is computed and all buffers are still there.
                        if (done >= 1.0) resident_bytes_ = ResidentBytes();
                        course_.Note([done](RunProgress& progress) {  // threads report in any order
                          progress.fraction = std::max(progress.fraction, done);
                        });
                      },
                  .waiting =
                      [this](int64_t step) {
                        course_.Note([step](RunProgress& now) { now.waiting_step = step; });
                      },
                  .await_rows = [this](int64_t rows) { return course_.AwaitRows(rows); },
                  .rows_final =
                      [this](int64_t rows) {
                        course_.Note([rows](RunProgress& now) { now.rows_final = rows; });
                        if (rows < shard_->store->rows()) NoteRowsFinal();
                      }},
      .layer = [this](int64_t layer) {
        course_.Note([layer](RunProgress& now) { now.layer = layer; });
      }};
  if (spans_) spans_->NoteIn(control);
  shard_->ClearOutputs();
  auto& ring = shard_->ring;
  return work_->Execute(*shard_->store, lane_->device(), ring ? ring->communicator() : nullptr,
                        ring ? ring->first_step() : 1, control);
}

// Ends a cancelled compute that waits for peers.
void RunCall::AwaitComputed() {
  bool aborted = false;
  while (!course_.AwaitComputed(kPoll)) {
    if (!course_.IsStopped() || std::exchange(aborted, true)) continue;
    if (shard_->ring) shard_->ring->communicator()->Abort("the job was cancelled");
  }
}

void RunCall::Release() {
  std::shared_ptr<Buffer> own = shard_ ? std::move(shard_->own) : nullptr;
  std::shared_ptr<MappedShard> shared = shard_ ? std::move(shard_->shared) : nullptr;
  shard_.reset();
  if (shared != nullptr && shared->pin != nullptr) state_.pinned.Keep(std::move(shared));
  if (own != nullptr && own->bytes() >= RunShard::kLeastKept && course_.failure().ok()) {
    state_.kept.Keep(std::move(own));
  }
  files_ = {};
  const int64_t bytes = work_->cost().resident_bytes();
  work_.reset();
  TrimMalloc(bytes);
  reservation_.reset();
}

}  // namespace hilbert_ring::server
