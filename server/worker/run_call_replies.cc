// What a worker tells the coordinator of a job, apart from its readiness and that its files are
// read: by its sending thread, and where there is none, or that one may wait, by others.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/base/peer_error.h"
#include "engine/base/return_if_error.h"
#include "server/shard/run_message.h"
#include "server/worker/run_call.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{200};
constexpr size_t kMostRefusalBytes = 128;  // of which the coordinator takes no more

}  // namespace

// In the sending thread.
void RunCall::SendUntilExecuted() {
  while (true) {
    MutexLock lock(mutex_);
    const int64_t seen = rows_final_seen_;
    changed_.wait_for(lock, kProgressInterval,
                      [this, seen]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                        return executed_ || news_.rows_final > seen;
                      });
    rows_final_seen_ = news_.rows_final;
    const bool executed = executed_;
    lock.unlock();
    SendNews();
    if (executed) return;
  }
}

// In the watch's thread, now and then while rows are received.
void RunCall::EndUnfed() {
  if (std::chrono::steady_clock::now() <= fed_until_.load()) return;
  spdlog::warn("job {}, rank {}: nothing was heard of its rows for {} ms (--feed-timeout)",
               open_.job_id(), rank_, state_.feed_timeout.count());
  fed_until_ = Deadline::max();
  context_.TryCancel();
}

// In the sending thread; where the shard is shared, and its outputs need not be sent, also in the
// executing one, which then has no other thread to wake.
void RunCall::SendNews() {
  const MutexLock sending(sending_);
  if (all_sent_ || !sent_.ok()) return;
  MutexLock lock(mutex_);
  News news = news_;
  const bool executed = executed_;
  lock.unlock();
  news.file_bytes = files_ == nullptr ? 0 : files_->bytes_read() + files_->bytes_written();
  all_sent_ = executed;
  if (executed && !figures_.ok()) {
    sent_ = SendFailure();
  } else {
    sent_ = executed ? SendEnd(news.rows_final) : SendProgress(news);
    // The first output that cannot be written ends it: what is computed has no place.
    if (files_ != nullptr && !sent_.ok() && !absl::IsCancelled(sent_)) {
      SendFailed(sent_);
      cancelled_ = true;
    }
  }
}

absl::Status RunCall::SendProgress(const News& news) {
  const Deadline now = std::chrono::steady_clock::now();
  const bool moved = news.fraction > sent_news_.fraction ||
                     news.waiting_step != sent_news_.waiting_step ||
                     news.file_bytes > sent_news_.file_bytes;
  if (moved && now >= progress_due_) {
    sent_news_ = news;
    progress_due_ = now + kProgressInterval;
    v1::RunResponse response;
    response.mutable_progress()->set_fraction(news.fraction);
    response.mutable_progress()->set_waiting_step(news.waiting_step);
    response.mutable_progress()->set_layer(news.layer);
    response.mutable_progress()->set_file_bytes(news.file_bytes);
    RETURN_IF_ERROR(Send(response));
  }
  return SendOutputs(news.rows_final, {});
}

// While outputs are written, or brought to the disk, by the thread that would say more.
absl::Status RunCall::TellFileBytes() {
  if (cancelled_ || context_.IsCancelled()) return Cancelled();
  const Deadline now = std::chrono::steady_clock::now();
  if (now < progress_due_) return absl::OkStatus();
  progress_due_ = now + kProgressInterval;
  sent_news_.file_bytes = files_->bytes_read() + files_->bytes_written();
  v1::RunResponse response;
  response.mutable_progress()->set_fraction(sent_news_.fraction);
  response.mutable_progress()->set_layer(sent_news_.layer);
  response.mutable_progress()->set_file_bytes(sent_news_.file_bytes);
  return Send(response);
}

void RunCall::SendFailed(const absl::Status& why) {
  all_sent_ = true;
  if (context_.IsCancelled()) return;
  v1::RunResponse response;
  *response.mutable_failed() = FailedOf(why);
  Send(response).IgnoreError();  // the status says it too
}

v1::RunFailed RunCall::Failure() const { return FailedOf(figures_.status()); }

v1::RunFailed RunCall::FailedOf(const absl::Status& error) {
  v1::RunFailed failed;
  failed.set_code(static_cast<int>(error.code()));
  failed.set_message(std::string(error.message()));
  failed.set_reason(absl::IsDeadlineExceeded(error) ? std::string(wire::reason::kJobTimeout.name)
                                                    : wire::ReasonOf(error));
  if (const auto peer = PeerOf(error)) failed.set_peer(*peer);
  return failed;
}

// The status could follow only when all rows have come.
absl::Status RunCall::SendFailure() {
  if (cancelled_ || context_.IsCancelled()) return absl::OkStatus();
  v1::RunResponse response;
  *response.mutable_failed() = Failure();
  return Send(response);
}

// In the executing thread: the sending one may wait for a client that does not read.
void RunCall::TellFailure() {
  if (figures_.ok() || shared_ != nullptr || cancelled_ || context_.IsCancelled()) return;
  v1::RunFailure failure;
  failure.set_run(open_.run());
  *failure.mutable_failed() = Failure();
  state_.calls.NoteFailed(std::move(failure));
}

// The last messages leave together.
absl::Status RunCall::SendEnd(int64_t rows_final) {
  if (whole_) return SendWhole();
  const auto options = grpc::WriteOptions().set_buffer_hint();
  v1::RunResponse response;
  response.mutable_computed()->set_seconds(compute_seconds_);
  RETURN_IF_ERROR(Send(response, options));
  RETURN_IF_ERROR(SendOutputs(rows_final, options));
  if (files_ != nullptr) {
    RETURN_IF_ERROR(
        files_->Sync([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_) { return TellFileBytes(); }));
  }
  for (v1::PooledSums& pooled : work_->TakePooled()) {
    response.Clear();
    *response.mutable_pooled() = std::move(pooled);
    RETURN_IF_ERROR(Send(response));
  }
  return SendFigures();
}

absl::Status RunCall::SendOutputs(int64_t rows_final, grpc::WriteOptions options) {
  if (rows_final <= rows_sent_) return absl::OkStatus();
  rows_sent_ = rows_final;
  if (files_ != nullptr) {
    return files_->Write(
        rows_final, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_) { return TellFileBytes(); });
  }
  if (shared_ != nullptr) {
    v1::RunResponse response;
    response.mutable_final()->set_rows(rows_final);
    return Send(response, options);
  }
  // The transport may hold a message for longer than there is the shard.
  if (!pool_) pool_.emplace(MostPayloadBytes(work_->plan().rows, store_->rows()));
  v1::OutputChunk output;
  std::string_view payload;
  while (output_->Next(rows_final, output, payload)) {
    RETURN_IF_ERROR(Send(JoinOutput(output, output_->first_slot(), pool_->Copy(payload)), {}));
  }
  return output_->status();
}

v1::WorkerReport RunCall::Report() {
  const WorkerCost& cost = work_->cost();
  const DeviceInfo info = lane_->device().info();
  v1::WorkerReport report;
  report.set_device(info.name);
  report.set_kernel(info.kernel);
  report.set_transport(transport_);
  report.set_tokens(cost.tokens);
  report.set_memory_peak_bytes(figures_->memory_peak_bytes);
  report.set_memory_predicted_bytes(cost.resident_bytes());
  report.set_memory_resident_bytes(std::max<int64_t>(0, resident_bytes_ - idle_bytes_));
  report.set_flops(figures_->flops);
  report.set_library_flops(figures_->library_flops);
  report.set_library_refusal(figures_->library_refusal.substr(0, kMostRefusalBytes));
  report.set_flops_predicted(cost.flops);
  report.set_compute_seconds(figures_->compute_seconds);
  report.set_exchange_seconds(figures_->exchange_seconds);
  report.set_exposed_exchange_seconds(figures_->exposed_exchange_seconds);
  report.set_bytes_sent(figures_->bytes_sent);
  report.set_bytes_received(figures_->bytes_received);
  report.set_bytes_received_predicted(cost.bytes_received);
  if (files_ != nullptr) {
    report.set_file_bytes_read(files_->bytes_read());
    report.set_file_bytes_written(files_->bytes_written());
    report.set_rows_not_finite(files_->rows_not_finite());
    report.set_first_row_not_finite(files_->first_not_finite());
  }
  if (spans_) {
    if (const std::optional<Deadline> done = RowsDone()) {
      spans_->Note({.kind = v1::Span::KIND_RECEIVE}, ready_, *done);
    }
    spans_->AddTo(report);
  }
  return report;
}

// It leaves with the status.
absl::Status RunCall::SendWhole() {
  v1::RunResponse response;
  response.mutable_whole()->mutable_computed()->set_seconds(compute_seconds_);
  *response.mutable_whole()->mutable_figures() = Report();
  return Send(response, grpc::WriteOptions().set_last_message());
}

absl::Status RunCall::SendFigures() {
  v1::RunResponse response;
  *response.mutable_figures() = Report();
  // Where the status follows at once, they leave with it.
  return Send(response, short_ ? grpc::WriteOptions().set_last_message() : grpc::WriteOptions());
}

absl::Status RunCall::Send(const v1::RunResponse& response, grpc::WriteOptions options) {
  return Send(wire::Serialize(response), options);
}

absl::Status RunCall::Send(const grpc::ByteBuffer& message, grpc::WriteOptions options) {
  return stream_.Write(message, options) ? absl::OkStatus() : Cancelled();
}

}  // namespace hilbert_ring::server
