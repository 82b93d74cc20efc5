#include "server/worker/run_sender.h"

#include <string>
#include <utility>

#include "engine/base/peer_error.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {

v1::RunFailed FailedOf(const absl::Status& error) {
  v1::RunFailed failed;
  failed.set_code(static_cast<int>(error.code()));
  failed.set_message(std::string(error.message()));
  failed.set_reason(absl::IsDeadlineExceeded(error) ? std::string(wire::reason::kJobTimeout.name)
                                                    : wire::ReasonOf(error));
  if (const auto peer = PeerOf(error)) failed.set_peer(*peer);
  return failed;
}

RunSender::RunSender(RunReplies replies, RunCourse& course, RunWork& work, ShardOutput& output,
                     RunMode mode, std::function<v1::WorkerReport()> report)
    : course_(course),
      work_(work),
      output_(output),
      mode_(mode),
      report_(std::move(report)),
      replies_(std::move(replies)) {}

absl::Status RunSender::Write(const v1::RunResponse& response) {
  const MutexLock lock(sending_);
  return told_failure_ ? absl::OkStatus() : replies_.Write(response);
}

void RunSender::SendNews() {
  const MutexLock lock(sending_);
  const RunNews news = course_.news();
  absl::Status written;
  switch (ReplyIn(news.phase)) {
    case RunReply::kNothing:
      return;
    case RunReply::kProgress:
      written = replies_.WriteProgress(news.progress);
      if (written.ok()) written = PutOutputs(news.progress.rows_final, {});
      break;
    case RunReply::kEnd:
      written = WriteEnd(news.progress.rows_final);
      if (written.ok()) course_.Enter(RunPhase::kDone);
      break;
    case RunReply::kFailure:
      WriteFailure(news.failure);
      return;
  }
  if (written.ok()) return;
  course_.Fail(written);
  WriteFailure(course_.failure());
}

void RunSender::SendUntilComputed() {
  RunNews news;
  do {
    news = course_.AwaitNews(news, RunReplies::kProgressInterval);
    SendNews();
  } while (!HasComputed(news.phase));
}

void RunSender::NoteRowsFinal() {
  if (!output_.in_place()) return course_.Wake();
  if (mode_ != RunMode::kOneMessage) SendNews();
}

void RunSender::NoteComputed() {
  if (output_.in_place()) SendNews();
  course_.Wake();
}

// Sent at once, because the status waits until all rows have come.
void RunSender::WriteFailure(const absl::Status& why) {
  if (std::exchange(told_failure_, true) || absl::IsCancelled(why)) return;
  v1::RunResponse response;
  *response.mutable_failed() = FailedOf(why);
  replies_.Write(response).IgnoreError();  // the status has the same error
}

absl::Status RunSender::PutOutputs(int64_t rows_final, grpc::WriteOptions options) {
  if (rows_final <= rows_put_) return absl::OkStatus();
  rows_put_ = rows_final;
  return output_.Put(rows_final, replies_, options);
}

// Buffers the last messages to leave together, with the status if it follows at once.
absl::Status RunSender::WriteEnd(int64_t rows_final) {
  const double seconds =
      SecondsBetween(course_.entered(RunPhase::kComputing), course_.entered(RunPhase::kSending));
  const auto together = grpc::WriteOptions().set_buffer_hint();
  const auto last = grpc::WriteOptions().set_last_message();
  v1::RunResponse response;
  if (mode_ == RunMode::kOneMessage) {
    response.mutable_whole()->mutable_computed()->set_seconds(seconds);
    *response.mutable_whole()->mutable_figures() = report_();
    return replies_.Write(response, last);
  }
  response.mutable_computed()->set_seconds(seconds);
  RETURN_IF_ERROR(replies_.Write(response, together));
  RETURN_IF_ERROR(PutOutputs(rows_final, together));
  RETURN_IF_ERROR(output_.Finish(replies_));
  for (v1::PooledSums& pooled : work_.TakePooled()) {
    *response.mutable_pooled() = std::move(pooled);
    RETURN_IF_ERROR(replies_.Write(response));
  }
  *response.mutable_figures() = report_();
  return replies_.Write(response, mode_ == RunMode::kThreads ? grpc::WriteOptions() : last);
}

}  // namespace hilbert_ring::server
