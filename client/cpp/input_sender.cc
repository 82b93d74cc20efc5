#include "client/cpp/input_sender.h"

#include <algorithm>

#include "wire/payload_message.h"
#include "wire/transport.h"

namespace hilbert_ring::client {

InputSender::InputSender(const JobTensors& tensors, const SendSettings& settings,
                         wire::RawStream& stream, ProgressTeller& progress)
    : tensors_(tensors),
      settings_(settings),
      stream_(stream),
      progress_(progress),
      chunks_(tensors, settings.max_payload_bytes),
      buffers_(std::min(settings.max_payload_bytes, tensors.input_bytes())),
      bytes_left_(tensors.input_bytes()),
      again_(tensors) {}

void InputSender::StartThread() {
  thread_ = std::jthread([this] { Run(); });
}

void InputSender::Resend(const v1::Resend& resend) {
  int64_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    bytes = again_.Add(resend);
  }
  progress_.Update([bytes](JobProgress& progress) { progress.bytes_to_send += bytes; });
  changed_.notify_one();
  if (!thread_.joinable()) StartThread();
}

void InputSender::Close() {
  if (!settings_.can_resend) return;  // it was closed with the last chunk
  {
    const MutexLock lock(mutex_);
    state_ = State::kReported;
  }
  changed_.notify_one();
  if (!thread_.joinable()) stream_.WritesDone();
}

void InputSender::Join() {
  {
    const MutexLock lock(mutex_);
    state_ = State::kEnded;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void InputSender::Run() {
  Send();
  if (!settings_.can_resend) return;
  MutexLock lock(mutex_);
  bool writable = true;
  while (writable && state_ == State::kOpen) {
    if (again_.empty()) {
      changed_.wait(lock);  // until the call ends, which has the call's deadline
      continue;
    }
    lock.unlock();
    writable = SendWaiting();
    lock.lock();
  }
  if (state_ != State::kReported) return;
  lock.unlock();
  stream_.WritesDone();
}

void InputSender::Send() {
  while (SendWaiting() && chunks_.Next(chunk_, payload_)) {
    bytes_left_ -= static_cast<int64_t>(payload_.size());
    grpc::WriteOptions options;
    if (bytes_left_ == 0 && !settings_.can_resend) options.set_last_message();
    // Few rows leave together, and wake the service once.
    if (bytes_left_ > 0 && tensors_.input_bytes() <= wire::kLookaheadBytes) {
      options.set_buffer_hint();
    }
    if (!SendNext(options)) return;
  }
}

// What the service has asked for so far. False when the stream has ended, or nothing more is
// wanted.
bool InputSender::SendWaiting() {
  while (true) {
    ResendQueue::Rows rows;
    {
      const MutexLock lock(mutex_);
      if (state_ != State::kOpen) return false;
      if (again_.empty()) return true;
      rows = again_.Take([this](const InputTensor& input) { return chunks_.RowsPerChunk(input); });
    }
    chunks_.Cut(*rows.input, rows.range.first_row, rows.range.rows, chunk_, payload_);
    if (!SendNext({})) return false;
  }
}

// chunk_. False when the stream has ended.
bool InputSender::SendNext(const grpc::WriteOptions& options) {
  // The transport may hold on to a message after the call, so it gets a copy.
  if (!stream_.Write(wire::JoinPayload(wire::kChunkFields, chunk_, {buffers_.Copy(payload_)}),
                     options)) {
    return false;
  }
  const auto bytes = static_cast<int64_t>(payload_.size());
  if (tensors_.sent) {
    const int64_t begin = chunk_.first_row() * (bytes / chunk_.rows());
    tensors_.sent(chunk_.tensor(), begin, begin + bytes);
  }
  progress_.Update([bytes](JobProgress& progress) { progress.bytes_sent += bytes; });
  return true;
}

}  // namespace hilbert_ring::client
