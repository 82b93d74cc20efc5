// Messages of a run to the coordinator, its report, and its figures in this worker's metrics.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/peer_error.h"
#include "engine/base/return_if_error.h"
#include "server/worker/run_call.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostRefusalBytes = 128;  // the coordinator takes no more

v1::RunFailed FailedOf(const absl::Status& error) {
  v1::RunFailed failed;
  failed.set_code(static_cast<int>(error.code()));
  failed.set_message(std::string(error.message()));
  failed.set_reason(absl::IsDeadlineExceeded(error) ? std::string(wire::reason::kJobTimeout.name)
                                                    : wire::ReasonOf(error));
  if (const auto peer = PeerOf(error)) failed.set_peer(*peer);
  return failed;
}

}  // namespace

absl::Status RunCall::Write(const v1::RunResponse& response) {
  const MutexLock lock(sending_);
  return told_failure_ ? absl::OkStatus() : replies_.Write(response);
}

void RunCall::SendNews() {
  const MutexLock lock(sending_);
  const RunNews news = course_.news();
  if (!news.failure.ok()) return WriteFailure(news.failure);
  absl::Status written;
  if (news.phase == RunPhase::kSending) {
    written = WriteEnd(news);
    if (written.ok()) course_.Enter(RunPhase::kDone);
  } else if (news.phase != RunPhase::kDone) {
    written = replies_.WriteProgress(news.progress);
    if (written.ok()) written = shard_->way->Put(news.progress.rows_final, replies_, {});
  }
  if (written.ok()) return;
  course_.Fail(written);
  WriteFailure(course_.failure());
}

void RunCall::SendUntilComputed() {
  RunNews news;
  do {
    news = course_.AwaitNews(news, RunReplies::kProgressInterval);
    SendNews();
  } while (!news.computed);
}

// Called by the executor, which must not wait for the coordinator or a disk: it sends itself if
// outputs stay in place, otherwise wakes the sender.
void RunCall::NoteRowsFinal() {
  if (!shard_->in_place()) return course_.Wake();
  if (!answers_once_) SendNews();
}

// Sent at once, because the status waits until all rows have come.
void RunCall::WriteFailure(const absl::Status& why) {
  if (std::exchange(told_failure_, true) || absl::IsCancelled(why)) return;
  v1::RunResponse response;
  *response.mutable_failed() = FailedOf(why);
  replies_.Write(response).IgnoreError();  // the status has the same error
}

// Buffers the last messages to leave together, with the status if it follows at once.
absl::Status RunCall::WriteEnd(const RunNews& news) {
  const double seconds =
      SecondsBetween(news.entered(RunPhase::kComputing), news.entered(RunPhase::kSending));
  const auto together = grpc::WriteOptions().set_buffer_hint();
  const auto last = grpc::WriteOptions().set_last_message();
  v1::RunResponse response;
  if (answers_once_) {
    response.mutable_whole()->mutable_computed()->set_seconds(seconds);
    *response.mutable_whole()->mutable_figures() = Report();
    return replies_.Write(response, last);
  }
  response.mutable_computed()->set_seconds(seconds);
  RETURN_IF_ERROR(replies_.Write(response, together));
  RETURN_IF_ERROR(shard_->way->Put(news.progress.rows_final, replies_, together));
  RETURN_IF_ERROR(shard_->way->FinishOutput(replies_));
  for (v1::PooledSums& pooled : work_->TakePooled()) {
    *response.mutable_pooled() = std::move(pooled);
    RETURN_IF_ERROR(replies_.Write(response));
  }
  *response.mutable_figures() = Report();
  return replies_.Write(response, short_ ? last : grpc::WriteOptions());
}

v1::WorkerReport RunCall::Report() {
  const WorkerCost& cost = work_->cost();
  const DeviceInfo device = lane_->device().info();
  const RunNews news = course_.news();
  const RunProgress& progress = news.progress;
  report_.set_device(device.name);
  report_.set_kernel(device.kernel);
  report_.set_transport(shard_->transport);
  report_.set_tokens(cost.tokens);
  report_.set_memory_peak_bytes(figures_->memory_peak_bytes);
  report_.set_memory_predicted_bytes(cost.resident_bytes());
  report_.set_memory_resident_bytes(std::max<int64_t>(0, resident_bytes_ - idle_bytes_));
  report_.set_flops(figures_->flops);
  report_.set_library_flops(figures_->library_flops);
  report_.set_library_refusal(figures_->library_refusal.substr(0, kMostRefusalBytes));
  report_.set_flops_predicted(cost.flops);
  report_.set_compute_seconds(figures_->compute_seconds);
  report_.set_exchange_seconds(figures_->exchange_seconds);
  report_.set_exposed_exchange_seconds(figures_->exposed_exchange_seconds);
  report_.set_bytes_sent(figures_->bytes_sent);
  report_.set_bytes_received(figures_->bytes_received);
  report_.set_bytes_received_predicted(cost.bytes_received);
  report_.set_file_bytes_read(progress.bytes_read);
  report_.set_file_bytes_written(progress.bytes_written);
  report_.set_rows_not_finite(progress.rows_not_finite);
  report_.set_first_row_not_finite(progress.first_not_finite);
  if (spans_) {
    spans_->Note({.kind = v1::Span::KIND_RECEIVE}, news.entered(RunPhase::kReceiving),
                 news.entered(RunPhase::kComputing));
    spans_->AddTo(report_);
  }
  return report_;
}

// Called by the executor: the sender may wait for a client that does not read.
void RunCall::NoteFailureBeside() {
  const absl::Status failure = course_.failure();
  if (failure.ok() || absl::IsCancelled(failure) || shard_->in_place() || context_.IsCancelled()) {
    return;
  }
  v1::RunFailure told;
  told.set_run(open_.run());
  *told.mutable_failed() = FailedOf(failure);
  state_.calls.NoteFailed(std::move(told));
}

void RunCall::Count(const absl::Status& status) const {
  const RunNews news = course_.news();
  const bool cancelled = absl::IsCancelled(status) && news.stopped_at != Deadline();
  const double cancel_seconds = SecondsBetween(news.stopped_at, Clock::now());
  if (cancelled) state_.calls.NoteCancelled(cancel_seconds);
  state_.metrics.CountRun(status.code());
  if (cancelled) state_.metrics.ObserveCancel(cancel_seconds);
  if (!status.ok()) return;
  state_.metrics.ObserveRun({.transport = report_.transport(),
                             .tokens = report_.tokens(),
                             .flops = report_.flops(),
                             .flops_planned = report_.flops_predicted(),
                             .receive_seconds = SecondsBetween(news.entered(RunPhase::kReceiving),
                                                               news.entered(RunPhase::kComputing)),
                             .compute_seconds = report_.compute_seconds(),
                             .exchange_seconds = report_.exchange_seconds(),
                             .exposed_exchange_seconds = report_.exposed_exchange_seconds(),
                             .bytes_sent = report_.bytes_sent(),
                             .bytes_received = report_.bytes_received(),
                             .bytes_received_planned = report_.bytes_received_predicted(),
                             .memory_peak_bytes = report_.memory_peak_bytes(),
                             .memory_predicted_bytes = report_.memory_predicted_bytes(),
                             .file_bytes_read = report_.file_bytes_read(),
                             .file_bytes_written = report_.file_bytes_written()});
}

}  // namespace hilbert_ring::server
