#include "server/coordinator/attend_stream.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kReadAhead = 4;  // messages
constexpr std::chrono::milliseconds kUnreadLimit{500};

absl::Status ClientIdle(std::string_view what) {
  return wire::WithReason(
      absl::DeadlineExceededError(absl::StrCat("the client has not ", std::string(what),
                                               " anything within the idle timeout")),
      "CLIENT_IDLE");
}

}  // namespace

std::shared_ptr<AttendStream> AttendStream::Make(grpc::CallbackServerContext* context) {
  std::shared_ptr<AttendStream> stream(new AttendStream(context));
  stream->self_ = stream;
  return stream;
}

void AttendStream::AwaitFirst(std::function<void()> began) {
  began_ = std::move(began);
  std::unique_lock lock(mutex_);
  reading_ = true;
  lock.unlock();
  StartRead(&incoming_);
}

int64_t AttendStream::first_bytes() {
  const std::lock_guard lock(mutex_);
  return arrived_.empty() ? 0 : static_cast<int64_t>(arrived_.front().Length());
}

void AttendStream::ReadAhead() {
  waiting_.reset();
  std::unique_lock lock(mutex_);
  read_ahead_ = kReadAhead;
  ReadNext(lock);
}

absl::StatusOr<bool> AttendStream::Read(AttendMessage& message, Deadline deadline,
                                        const JobStop& stop) {
  std::unique_lock lock(mutex_);
  const bool in_time = changed_.wait_until(lock, stop.token(), deadline,
                                           [this] { return !arrived_.empty() || ended_; });
  if (absl::Status why = stop.why(); !why.ok()) return why;
  // The job stops here and now: were that left to the caller, another thread could name a
  // consequence as the reason.
  if (!in_time) stop_.Request(ClientIdle("sent"));
  if (absl::Status why = stop_.why(); !why.ok()) return why;
  if (arrived_.empty()) return false;
  message.buffer.Swap(&arrived_.front());
  arrived_.pop_front();
  ReadNext(lock);
  v1::AttendRequest& request = message.request;
  if (wire::SplitPayload(message.buffer, wire::kChunkFields, *request.mutable_chunk(),
                         message.payload)) {
    return true;
  }
  if (!wire::Parse(message.buffer, request)) {
    return wire::WithReason(absl::InvalidArgumentError("a message is not an AttendRequest"),
                            "MALFORMED");
  }
  message.payload = wire::Payload(request.chunk().payload());
  return true;
}

absl::Status AttendStream::Write(const v1::AttendResponse& response, Deadline deadline) {
  return Write(wire::Serialize(response), deadline);
}

absl::Status AttendStream::Write(const v1::OutputChunk& chunk, std::string_view payload,
                                 std::shared_ptr<const void> owner, Deadline deadline) {
  return Write(
      wire::JoinPayload(wire::kOutputFields, chunk, {wire::SliceOf(payload, std::move(owner))}),
      deadline);
}

absl::Status AttendStream::Write(grpc::ByteBuffer response, Deadline deadline) {
  const std::lock_guard turn(write_turn_);
  std::unique_lock lock(mutex_);
  if (absl::Status why = stop_.why(); !why.ok()) return why;
  if (write_ != Operation::kDone) return absl::CancelledError("the client is gone");
  outgoing_.Swap(&response);
  write_ = Operation::kPending;
  lock.unlock();
  StartWrite(&outgoing_);
  lock.lock();
  const bool in_time = changed_.wait_until(lock, stop_.token(), deadline,
                                           [this] { return write_ != Operation::kPending; });
  if (!in_time) stop_.Request(ClientIdle("read"));
  if (absl::Status why = stop_.why(); !why.ok()) return why;
  if (write_ == Operation::kFailed) return absl::CancelledError("the client is gone");
  return absl::OkStatus();
}

void AttendStream::End(const v1::Report& report) {
  v1::AttendResponse response;
  *response.mutable_report() = report;
  outgoing_ = wire::Serialize(response);
  StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
}

void AttendStream::End(const absl::Status& status,
                       std::optional<std::chrono::milliseconds> retry_after) {
  if (retry_after) {
    context_->AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(retry_after->count()));
  }
  Finish(wire::ToGrpc(status));
}

void AttendStream::AwaitDone(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto done = [this] { return done_; };
  // The rows of a write that nobody reads are of a job that has ended.
  if (write_ == Operation::kPending) limit = std::min(limit, kUnreadLimit);
  if (changed_.wait_for(lock, limit, done)) return;
  context_->TryCancel();
  changed_.wait_for(lock, limit, done);
}

void AttendStream::OnReadDone(bool ok) {
  std::unique_lock lock(mutex_);
  reading_ = false;
  if (ok) {
    arrived_.emplace_back().Swap(&incoming_);
  } else {
    ended_ = true;
  }
  changed_.notify_all();
  ReadNext(lock);
  if (began_) std::exchange(began_, nullptr)();
}

// Starts the next read, unless one is under way or enough has arrived. Unlocks: gRPC may call back
// before StartRead returns.
void AttendStream::ReadNext(std::unique_lock<std::mutex>& lock) {
  const bool read = !reading_ && !ended_ && arrived_.size() < read_ahead_;
  reading_ = reading_ || read;
  lock.unlock();
  if (read) StartRead(&incoming_);
}

void AttendStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  write_ = ok ? Operation::kDone : Operation::kFailed;
  changed_.notify_all();
}

void AttendStream::OnCancel() {
  // The client's clock and ours differ a little.
  constexpr auto kSlack = std::chrono::milliseconds(50);
  const bool late = context_->deadline() <= std::chrono::system_clock::now() + kSlack;
  stop_.Request(late ? wire::WithReason(absl::DeadlineExceededError("the client's deadline passed"),
                                        "CLIENT_DEADLINE")
                     : wire::WithReason(absl::CancelledError("the client cancelled the job"),
                                        "CLIENT_CANCELLED"));
}

void AttendStream::OnDone() {
  const std::shared_ptr<AttendStream> self = std::move(self_);
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

}  // namespace hilbert_ring::server
