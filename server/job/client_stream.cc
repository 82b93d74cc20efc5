#include "server/job/client_stream.h"

#include <string>
#include <utility>

#include "engine/base/return_if_error.h"
#include "wire/payload_message.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kReadAhead = 4;  // messages
constexpr std::chrono::milliseconds kUnreadLimit{500};
constexpr std::chrono::milliseconds kArrivalLimit{5};
// A client whose rows follow may first wait for a processor.
constexpr std::chrono::milliseconds kFollowingLimit{100};

}  // namespace

std::shared_ptr<ClientStream> ClientStream::Make(grpc::CallbackServerContext* context,
                                                 const PaceLimits& limits, const TimeSource& time) {
  std::shared_ptr<ClientStream> stream(new ClientStream(context, limits, time));
  stream->self_ = stream;
  return stream;
}

void ClientStream::AwaitFirst(std::function<void()> began) {
  began_ = std::move(began);
  {
    const MutexLock lock(mutex_);
    reading_ = true;
  }
  StartRead(&incoming_);
}

int64_t ClientStream::first_bytes() {
  const MutexLock lock(mutex_);
  return arrived_.empty() ? 0 : static_cast<int64_t>(arrived_.front().Length());
}

void ClientStream::ReadAhead() {
  waiting_.reset();
  MutexLock lock(mutex_);
  read_ahead_ = kReadAhead;
  const bool read = ClaimRead();
  lock.unlock();
  if (read) StartRead(&incoming_);
}

bool ClientStream::AwaitMessage(Deadline due) {
  MutexLock lock(mutex_);
  return time_.WaitUntil(
      changed_, lock, stop_.token(), due,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !arrived_.empty() || ended_; });
}

bool ClientStream::EnoughArrived() const {
  return arrived_bytes_ >= awaited_bytes_ || ended_ || arrived_.size() >= read_ahead_;
}

// Waits by the system's clock, not by time_. The limits are short, and Read ends a client that
// sends too slowly.
bool ClientStream::AwaitArrived(int64_t bytes, Input input) {
  MutexLock lock(mutex_);
  if (arrived_.empty() && input == Input::kMayFollow) return false;
  awaited_bytes_ = bytes;
  changed_.wait_for(lock, input == Input::kFollows ? kFollowingLimit : kArrivalLimit,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return EnoughArrived(); });
  awaited_bytes_ = 0;
  return arrived_bytes_ >= bytes;
}

absl::StatusOr<bool> ClientStream::ReadBytes(grpc::ByteBuffer& message, const JobStop& stop) {
  MutexLock lock(mutex_);
  const Clock::time_point began = time_.Now();
  const Deadline deadline = sends_.Due(began, 0);
  const bool waits = arrived_.empty() && !ended_;
  if (waits && std::exchange(sated_, false) && ClaimRead()) {
    lock.unlock();
    StartRead(&incoming_);
    lock.lock();
  }
  const bool in_time = time_.WaitUntil(
      changed_, lock, stop.token(), deadline,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !arrived_.empty() || ended_; });
  RETURN_IF_ERROR(stop.why());
  const Clock::duration waited = waits ? time_.Now() - began : Clock::duration(0);
  // The first reason counts. A request by the caller could come after another thread's, whose
  // reason is only a consequence.
  if (!in_time) stop_.Request(sends_.Late(waited));
  RETURN_IF_ERROR(stop_.why());
  if (arrived_.empty()) return false;
  message.Swap(&arrived_.front());
  arrived_.pop_front();
  const auto bytes = static_cast<int64_t>(message.Length());
  arrived_bytes_ -= bytes;
  sends_.Moved(waited, bytes);
  const bool read = ClaimRead();
  lock.unlock();
  if (read) StartRead(&incoming_);
  return true;
}

absl::StatusOr<bool> ClientStream::Read(ClientMessage& message, const JobStop& stop) {
  absl::StatusOr<bool> more = ReadBytes(message.buffer, stop);
  if (!more.ok() || !*more) return more;
  v1::AttendRequest& request = message.request;
  if (wire::SplitPayload(message.buffer, wire::kChunkFields, *request.mutable_chunk(),
                         message.payload)) {
    return true;
  }
  if (!wire::ParseBounded(message.buffer, request)) {
    return wire::ErrorOf(wire::reason::kInvalidOpen, "a message is not an AttendRequest");
  }
  message.payload = wire::Payload(request.chunk().payload());
  return true;
}

absl::Status ClientStream::Write(const v1::AttendResponse& response, const JobStop& stop) {
  const grpc::ByteBuffer message = wire::Serialize(response);
  MutexLock lock(mutex_);
  const absl::StatusOr<bool> turn = AwaitTurn(lock, kAnyPatience, stop);
  if (!turn.ok()) return turn.status();
  Prepare(message);
  lock.unlock();
  StartWrite(&outgoing_);
  return absl::OkStatus();
}

absl::StatusOr<bool> ClientStream::Write(const v1::OutputChunk& chunk, std::string_view payload,
                                         std::shared_ptr<const void> owner,
                                         Clock::duration patience, const JobStop& stop,
                                         SendMode mode) {
  MutexLock lock(mutex_);
  if (mode == SendMode::kWithReport && Hold(chunk, payload)) {
    RETURN_IF_ERROR(stop.why());
    RETURN_IF_ERROR(stop_.why());
    return true;
  }
  absl::StatusOr<bool> turn = AwaitTurn(lock, patience, stop);
  if (!turn.ok() || !*turn) return turn;
  grpc::Slice slice = mode != SendMode::kNow ? grpc::Slice(payload.data(), payload.size())
                                             : wire::SliceOf(payload, std::move(owner));
  grpc::WriteOptions options;
  // The transport takes the first write only when the call's metadata has left.
  if (mode != SendMode::kNow && write_bytes_ > 0) options.set_buffer_hint();
  Prepare(wire::JoinPayload(wire::kOutputFields, chunk, {std::move(slice)}));
  lock.unlock();
  StartWrite(&outgoing_, options);
  return true;
}

bool ClientStream::Hold(const v1::OutputChunk& chunk, std::string_view payload) {
  const auto bytes = static_cast<int64_t>(payload.size());
  if (held_bytes_ + bytes > kMostHeldBytes) return false;
  held_bytes_ += bytes;
  held_.push_back(chunk);
  held_.back().set_payload(std::string(payload));
  return true;
}

absl::Status ClientStream::AwaitTaken(const JobStop& stop) {
  MutexLock lock(mutex_);
  const absl::StatusOr<bool> turn = AwaitTurn(lock, kAnyPatience, stop);
  written_.notify_one();  // for the next writer
  return turn.status();
}

void ClientStream::Offer(const v1::AttendResponse& response) {
  MutexLock lock(mutex_);
  if (!stop_.why().ok() || write_ != Operation::kDone) return;
  Prepare(wire::Serialize(response));
  lock.unlock();
  StartWrite(&outgoing_);
}

absl::StatusOr<bool> ClientStream::AwaitTurn(MutexLock& lock, Clock::duration patience,
                                             const JobStop& stop) {
  const Deadline patient = patience == kAnyPatience ? Deadline::max() : time_.Now() + patience;
  absl::Status status;
  while (true) {
    status = stop.why();
    if (status.ok()) status = stop_.why();
    if (!status.ok() || write_ != Operation::kPending) break;
    const Clock::time_point now = time_.Now();
    // A client may read only after it has sent all rows, so each message that arrives extends the
    // wait.
    const Deadline due = std::max(write_due_, arrived_at_ + idle_);
    if (now >= due) {
      stop_.Request(reads_.Late(now - write_began_));
      continue;
    }
    if (now >= patient) return false;
    time_.WaitUntil(
        written_, lock, stop.token(), std::min(patient, due),
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return write_ != Operation::kPending; });
  }
  if (status.ok() && write_ == Operation::kFailed) {
    stop_.Request(Gone());
    status = stop_.why();
  }
  if (status.ok()) return true;
  written_.notify_one();  // for the next writer
  return status;
}

void ClientStream::Prepare(grpc::ByteBuffer response) {
  outgoing_.Swap(&response);
  write_ = Operation::kPending;
  write_began_ = time_.Now();
  write_bytes_ = static_cast<int64_t>(outgoing_.Length());
  write_due_ = reads_.Due(write_began_, write_bytes_);
}

void ClientStream::End(const v1::Report& report) {
  v1::AttendResponse response;
  *response.mutable_report() = report;
  MutexLock lock(mutex_);
  if (const absl::StatusOr<bool> turn = AwaitTurn(lock, kAnyPatience, stop_); !turn.ok()) {
    lock.unlock();
    return End(turn.status(), std::nullopt);
  }
  response.mutable_outputs()->Reserve(static_cast<int>(held_.size()));
  for (v1::OutputChunk& chunk : held_) *response.add_outputs() = std::move(chunk);
  held_.clear();
  lock.unlock();
  outgoing_ = wire::Serialize(response);
  StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
}

void ClientStream::End(const absl::Status& status,
                       std::optional<std::chrono::milliseconds> retry_after) {
  if (retry_after) {
    context_->AddTrailingMetadata(wire::kRetryAfterKey, std::to_string(retry_after->count()));
  }
  Finish(wire::ToGrpc(status));
}

void ClientStream::AwaitDone(std::chrono::milliseconds limit) {
  MutexLock lock(mutex_);
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_; };
  // The job has ended, but a write that the client has not taken still holds its rows.
  if (write_ == Operation::kPending) limit = std::min(limit, kUnreadLimit);
  if (changed_.wait_for(lock, limit, done)) return;
  context_->TryCancel();
  changed_.wait_for(lock, limit, done);
}

void ClientStream::OnReadDone(bool ok) {
  MutexLock lock(mutex_);
  reading_ = false;
  if (ok) {
    arrived_.emplace_back().Swap(&incoming_);
    arrived_bytes_ += static_cast<int64_t>(arrived_.back().Length());
    arrived_at_ = time_.Now();
  } else {
    ended_ = true;
  }
  if (EnoughArrived()) changed_.notify_all();
  // A read after the last row would bring no row: it ends with the call, and wakes a thread.
  if (awaited_bytes_ > 0 && arrived_bytes_ >= awaited_bytes_) sated_ = true;
  const bool read = ClaimRead();
  lock.unlock();
  if (read) StartRead(&incoming_);
  if (began_) std::exchange(began_, nullptr)();
}

bool ClientStream::ClaimRead() {
  if (reading_ || ended_ || sated_ || arrived_.size() >= read_ahead_) return false;
  return reading_ = true;
}

void ClientStream::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  write_ = ok ? Operation::kDone : Operation::kFailed;
  if (ok) reads_.Moved(time_.Now() - write_began_, write_bytes_);
  written_.notify_one();
}

void ClientStream::OnCancel() { stop_.Request(Gone()); }

absl::Status ClientStream::Gone() const {
  constexpr auto kSlack = std::chrono::milliseconds(50);  // between the clocks of client and host
  const bool late = context_->deadline() <= std::chrono::system_clock::now() + kSlack;
  return late ? wire::ErrorOf(wire::reason::kClientDeadline, "the client's deadline passed")
              : wire::ErrorOf(wire::reason::kClientCancelled, "the client cancelled the job");
}

void ClientStream::OnDone() {
  const std::shared_ptr<ClientStream> self = std::move(self_);
  const MutexLock lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

}  // namespace hilbert_ring::server
