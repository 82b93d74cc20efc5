#include "server/stream/served_stream.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/job_client.h"
#include "server/job/job_open.h"
#include "server/job/served_job.h"
#include "server/process/logging.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Between tries of an epoch while the queue is full.
constexpr auto kAgain = std::chrono::milliseconds(100);
constexpr int kMostNotes = 16;

int32_t Sum(int32_t a, int32_t b) {
  int32_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int32_t>::max() : sum;
}

// The client of an epoch's job: rows come from the stream's memory, also again after a loss of
// workers; outputs go to the epoch's buffer.
class EpochClient : public JobClient {
 public:
  struct Parts {
    JobStop* stop = nullptr;           // the stream's
    const StreamRows* rows = nullptr;  // null: only Open is read
    RowSpan span;                      // of the stream
    EpochBuffer* outputs = nullptr;
  };

  // open: of the epoch's job. The parts outlive it.
  EpochClient(const v1::Open& open, const Parts& parts) : open_(open), parts_(parts) {}

  JobStop& stop() override { return *parts_.stop; }
  void ReadAhead() override {}
  bool AwaitArrived(int64_t /*bytes*/, Input /*input*/) override { return true; }

  // Open, then rows of Q, K and V in bands, then rows that were lost.
  absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) override;

  absl::Status Write(const v1::AttendResponse& response, const JobStop& stop) override;
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                             std::shared_ptr<const void> owner, Clock::duration patience,
                             const JobStop& stop, SendMode mode) override;
  absl::Status AwaitTaken(const JobStop& stop) override { return stop.why(); }
  void Offer(const v1::AttendResponse& response) override {}

 private:
  struct Piece {
    TensorKind tensor;
    int64_t first_row, rows;  // of the epoch
  };
  int64_t RowsOfChunk() const;

  const v1::Open open_;
  const Parts parts_;
  bool opened_ = false;
  // The reading thread's, which also requests lost rows:
  int64_t band_ = 0;          // rows of each tensor, read or in pieces_
  std::deque<Piece> pieces_;  // to be read
};

absl::StatusOr<bool> EpochClient::Read(ClientMessage& message, const JobStop& stop) {
  RETURN_IF_ERROR(stop.why());
  if (!std::exchange(opened_, true)) {
    *message.request.mutable_open() = open_;
    return true;
  }
  if (parts_.rows == nullptr) return false;
  const int64_t tokens = parts_.span.end - parts_.span.begin;
  if (pieces_.empty() && band_ < tokens) {
    const int64_t rows = std::min(RowsOfChunk(), tokens - band_);
    for (const TensorKind tensor : kStreamed) pieces_.push_back({tensor, band_, rows});
    band_ += rows;
  }
  if (pieces_.empty()) return false;
  Piece& piece = pieces_.front();
  const int64_t rows = std::min(RowsOfChunk(), piece.rows);
  message.payload = parts_.rows->At(piece.tensor, parts_.span.begin + piece.first_row, rows);
  v1::Chunk& chunk = *message.request.mutable_chunk();
  chunk.set_tensor(wire::TensorOf(piece.tensor));
  chunk.set_first_row(piece.first_row);
  chunk.set_rows(rows);
  message.checked = true;
  piece.first_row += rows;
  piece.rows -= rows;
  if (piece.rows == 0) pieces_.pop_front();
  return true;
}

int64_t EpochClient::RowsOfChunk() const {
  return std::max<int64_t>(1, kStreamChunkBytes / parts_.rows->widest_row_bytes());
}

absl::Status EpochClient::Write(const v1::AttendResponse& response, const JobStop& stop) {
  RETURN_IF_ERROR(stop.why());
  if (!response.has_resend()) return absl::OkStatus();
  const auto tensor = wire::TensorKindOf(response.resend().tensor());
  for (const v1::Resend::Range& range : response.resend().ranges()) {
    pieces_.push_back({*tensor, range.first_row(), range.rows()});
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> EpochClient::Write(const v1::OutputChunk& chunk, std::string_view payload,
                                        std::shared_ptr<const void> /*owner*/,
                                        Clock::duration /*patience*/, const JobStop& stop,
                                        SendMode /*mode*/) {
  RETURN_IF_ERROR(stop.why());
  RETURN_IF_ERROR(parts_.outputs->Place(chunk, payload));
  return true;
}

}  // namespace

ServedStream::ServedStream(const JobServices& services, StreamMemory& memory, ClientStream& client,
                           Caller caller, std::string traceparent)
    : services_(services),
      memory_(memory),
      client_(client),
      caller_(std::move(caller)),
      traceparent_(std::move(traceparent)),
      epoch_table_(services.observers.time),
      epoch_services_({.cluster = services.cluster,
                       .memory = services.memory,
                       .limits = {.settings = services.limits.settings,
                                  .quotas = epoch_quotas_,
                                  .plans = services.limits.plans},
                       .observers = {.jobs = epoch_table_,
                                     .metrics = services.observers.metrics,
                                     .time = services.observers.time}}),
      course_(services.observers.time),
      opened_(services.observers.time.Now()) {}

absl::StatusOr<v1::Report> ServedStream::Run() {
  absl::Status status = Open();
  if (status.ok()) {
    course_.SetJob(open_.job_id(), 0, true);
    auto entry = services_.observers.jobs.Enter(caller_.name, open_.job_id(), open_.attempt(),
                                                &client_.stop(), &course_);
    status = entry.ok() ? RunStream() : entry.status();
    course_.Show(status.ok() ? JobPhase::kDone : JobPhase::kFailed, 0, 0);
  }
  // Later errors may follow from the stop.
  if (absl::Status why = client_.stop().why(); !status.ok() && !why.ok()) status = why;
  // A failed epoch is counted as a job already.
  if (!status.ok() && !epoch_failed_) {
    services_.observers.metrics.CountJob(status.code(), wire::ReasonOf(status));
  }
  NoteEnd(status);
  if (!status.ok()) return status;
  return std::move(report_);
}

absl::Status ServedStream::Open() {
  RETURN_IF_ERROR(ReadOpen(client_, open_));
  RETURN_IF_ERROR(CheckOpen());
  ASSIGN_OR_RETURN(const JobSpec spec, wire::DecodeJobSpec(open_.spec()));
  ASSIGN_OR_RETURN(
      epochs_, Epochs::Make(spec, {.asked = open_.epoch_tokens(),
                                   .most_bytes = services_.limits.settings.stream_memory_bytes / 16,
                                   .want_lse = open_.want_lse(),
                                   .spec = LimitsOf(services_.limits.settings)}));
  return absl::OkStatus();
}

absl::Status ServedStream::CheckOpen() const {
  if (open_.has_encode()) return BadOpen("Open has encode, which AttendStream does not take");
  if (open_.files_size() > 0) {
    return BadOpen("files: a stream's rows must be sent; Attend reads files");
  }
  if (open_.want_trace()) return BadOpen("want_trace: a stream has no trace");
  return absl::OkStatus();
}

absl::Status ServedStream::RunStream() {
  course_.Show(JobPhase::kSizing, 0, 0);
  RETURN_IF_ERROR(FitEpoch());
  RETURN_IF_ERROR(ReserveMemory());
  rows_.emplace(*epochs_);
  outputs_.emplace(*epochs_, client_);
  RETURN_IF_ERROR(Admit());
  const auto ended = [this](absl::Status status) {
    if (!status.ok()) client_.stop().Request(std::move(status));
  };
  auto receiver = services_.memory.threads.Start([&] { ended(Receive()); });
  auto sender = services_.memory.threads.Start([&] { ended(outputs_->Send(client_.stop())); });
  ended(Compute());
  outputs_->End();
  receiver.Join();
  sender.Join();
  RETURN_IF_ERROR(client_.stop().why());
  report_.set_job_id(open_.job_id());
  report_.set_total_seconds(SecondsBetween(opened_, services_.observers.time.Now()));
  report_.set_tokens_per_second(static_cast<double>(report_.tokens()) / report_.total_seconds());
  report_.set_bytes_received(bytes_received_);
  report_.set_bytes_sent(outputs_->bytes_sent());
  return absl::OkStatus();
}

absl::Status ServedStream::FitEpoch() {
  while (true) {
    EpochClient client(OpenOf(epochs_->most_tokens()), {.stop = &client_.stop()});
    absl::Status status = ServedJob(epoch_services_, client, caller_).Try();
    if (status.ok()) status = ReserveQuota();
    const bool too_large = wire::HasReason(status, wire::reason::kDoesNotFit) ||
                           wire::HasReason(status, wire::reason::kOverQuota);
    if (!too_large || open_.epoch_tokens() > 0 || !epochs_->Halve()) return status;
  }
}

absl::Status ServedStream::ReserveQuota() {
  const int64_t most = epochs_->most_tokens();
  auto share = services_.limits.quotas.Reserve(
      caller_,
      {.tokens = most, .bytes = most * (epochs_->input_row_bytes() + epochs_->output_row_bytes())});
  RETURN_IF_ERROR(share.status());
  quota_.emplace(*std::move(share));
  return absl::OkStatus();
}

absl::Status ServedStream::ReserveMemory() {
  ASSIGN_OR_RETURN(held_, memory_.Reserve(caller_, epochs_->held_bytes(), "the stream"));
  return absl::OkStatus();
}

absl::Status ServedStream::Admit() {
  client_.ReadAhead();
  v1::AttendResponse response;
  v1::Admitted& admitted = *response.mutable_admitted();
  admitted.set_job_id(open_.job_id());
  admitted.set_max_payload_bytes(wire::kMaxPayloadBytes);
  admitted.set_epoch_tokens(epochs_->tokens());
  return client_.Write(response, client_.stop());
}

absl::Status ServedStream::Receive() {
  const Deadline due = services_.observers.time.Now() + services_.limits.settings.open_timeout;
  if (!client_.AwaitMessage(due) && client_.stop().why().ok()) held_.reset();
  ClientMessage message;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, client_.Read(message, client_.stop()));
    if (!more) return rows_->End();
    if (!held_) RETURN_IF_ERROR(ReserveMemory());
    if (!message.request.has_chunk()) return BadOpen("after Open a client sends chunks alone");
    bytes_received_ += message.payload.bytes();
    RETURN_IF_ERROR(rows_->Accept(message.request.chunk(), message.payload, client_.stop()));
  }
}

absl::Status ServedStream::Compute() {
  while (true) {
    course_.Show(JobPhase::kReceiving, 0, 0);
    ASSIGN_OR_RETURN(const RowSpan span, rows_->AwaitEpoch(client_.stop()));
    if (span.begin == span.end) return absl::OkStatus();
    ASSIGN_OR_RETURN(EpochBuffer* const buffer, outputs_->Await(client_.stop()));
    auto report = RunEpoch(span, *buffer);
    if (!report.ok()) {
      epoch_failed_ = true;
      return report.status();
    }
    rows_->Release(span);
    Add(*report);
    v1::Epoch epoch;
    epoch.set_first_token(span.begin);
    *epoch.mutable_report() = *std::move(report);
    outputs_->Leave(*buffer, epoch);
  }
}

// A job without room fails; a stream that has begun waits for it.
absl::StatusOr<v1::Report> ServedStream::RunEpoch(const RowSpan& span, EpochBuffer& buffer) {
  const CoordinatorSettings& settings = services_.limits.settings;
  const Clock::time_point start = services_.observers.time.Now();
  while (true) {
    const int64_t seen = services_.cluster.membership.changes();
    auto report = RunJob(span, buffer);
    const auto is = [&report](const wire::Reason& reason) {
      return wire::HasReason(report.status(), reason);
    };
    const bool queue = is(wire::reason::kQueueFull);
    const bool workers = is(wire::reason::kNoWorkers) || is(wire::reason::kDoesNotFit);
    const auto limit = queue     ? settings.queue_timeout
                       : workers ? settings.recovery_timeout
                                 : std::chrono::milliseconds(0);
    if (report.ok() || services_.observers.time.Now() - start >= limit) return report;
    if (workers) {
      RETURN_IF_ERROR(
          services_.cluster.membership.AwaitChange(seen, start + limit, client_.stop()));
      continue;
    }
    services_.observers.time.AwaitStop(client_.stop().token(),
                                       services_.observers.time.Now() + kAgain);
    RETURN_IF_ERROR(
        services_.cluster.scheduler.AwaitRoom(caller_.turns, client_.stop(), start + limit));
  }
}

absl::StatusOr<v1::Report> ServedStream::RunJob(const RowSpan& span, EpochBuffer& buffer) {
  EpochClient client(OpenOf(span.end - span.begin),
                     {.stop = &client_.stop(), .rows = &*rows_, .span = span, .outputs = &buffer});
  ServedJob job(epoch_services_, client, caller_, traceparent_);
  job.ShowIn(course_);
  return job.Run();
}

v1::Open ServedStream::OpenOf(int64_t tokens) const {
  v1::Open open;
  *open.mutable_spec() = wire::EncodeJobSpec(epochs_->SpecOf(tokens));
  open.set_want_lse(open_.want_lse());
  open.set_job_id(open_.job_id());
  open.set_can_resend(true);
  return open;
}

void ServedStream::Add(const v1::Report& epoch) {
  v1::Report& all = report_;
  course_.AddEpoch(epoch.tokens());
  services_.observers.metrics.CountStreamEpoch();
  all.set_epochs(all.epochs() + 1);
  all.set_tokens(all.tokens() + epoch.tokens());
  all.set_queue_seconds(all.queue_seconds() + epoch.queue_seconds());
  all.set_ring_seconds(all.ring_seconds() + epoch.ring_seconds());
  all.set_receive_seconds(all.receive_seconds() + epoch.receive_seconds());
  all.set_compute_seconds(all.compute_seconds() + epoch.compute_seconds());
  all.set_send_seconds(all.send_seconds() + epoch.send_seconds());
  all.set_bytes_exchanged(all.bytes_exchanged() + epoch.bytes_exchanged());
  all.set_bytes_exchanged_planned(all.bytes_exchanged_planned() + epoch.bytes_exchanged_planned());
  all.set_bytes_exchanged_naive(all.bytes_exchanged_naive() + epoch.bytes_exchanged_naive());
  all.set_ring_generation(epoch.ring_generation());
  all.set_retries(Sum(all.retries(), epoch.retries()));
  all.set_rows_checked(Sum(all.rows_checked(), epoch.rows_checked()));
  all.set_rows_not_judged(Sum(all.rows_not_judged(), epoch.rows_not_judged()));
  *all.mutable_workers() = epoch.workers();
  for (const std::string& note : epoch.notes()) {
    const bool known = std::ranges::find(all.notes(), note) != all.notes().end();
    if (!known && all.notes_size() < kMostNotes) all.add_notes(note);
  }
}

void ServedStream::NoteEnd(const absl::Status& status) {
  const double seconds = SecondsBetween(opened_, services_.observers.time.Now());
  services_.observers.jobs.NoteEnded({.caller = caller_.name,
                                      .job_id = open_.job_id(),
                                      .code = absl::StatusCodeToString(status.code()),
                                      .tokens = report_.tokens(),
                                      .workers = report_.workers_size(),
                                      .seconds = {.queue = report_.queue_seconds(),
                                                  .ring = report_.ring_seconds(),
                                                  .receive = report_.receive_seconds(),
                                                  .compute = report_.compute_seconds(),
                                                  .send = report_.send_seconds(),
                                                  .total = seconds}});
  std::vector<LogField> fields = {{"job", open_.job_id()},
                                  {"code", absl::StatusCodeToString(status.code())},
                                  {"caller", caller_.name},
                                  {"epochs", report_.epochs()},
                                  {"tokens", report_.tokens()},
                                  {"seconds", seconds},
                                  {"bytes_received", bytes_received_},
                                  {"bytes_sent", outputs_ ? outputs_->bytes_sent() : 0},
                                  {"retries", int64_t{report_.retries()}},
                                  {"traceparent", traceparent_}};
  if (!status.ok()) {
    fields.insert(fields.end(),
                  {{"reason", wire::ReasonOf(status)}, {"error", std::string(status.message())}});
  }
  LogEvent(status.ok() ? spdlog::level::info : spdlog::level::warn, "stream ended", fields);
}

}  // namespace hilbert_ring::server
