#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

#include "client/cpp/conversation.h"
#include "client/cpp/errors.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/client_context.h"
#include "wire/payload_message.h"
#include "wire/raw_stream.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using Sending = Conversation::Sending;

// Until its end, calls `cancelled`, if set, ten times a second in its own thread.
class CancelWatch {
 public:
  // Both must outlive the object.
  CancelWatch(const std::function<bool()>& cancelled, grpc::ClientContext& context)
      : cancelled_(cancelled), context_(context) {
    if (cancelled_) thread_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
  }

  bool fired() const { return fired_; }

 private:
  void Watch(const std::stop_token& stop) {
    MutexLock lock(mutex_);
    while (!wake_.wait_for(lock, stop, std::chrono::milliseconds(100),
                           [&stop] { return stop.stop_requested(); })) {
      if (!cancelled_()) continue;
      fired_ = true;
      context_.TryCancel();
      return;
    }
  }

  const std::function<bool()>& cancelled_;
  grpc::ClientContext& context_;
  std::atomic<bool> fired_ = false;
  Mutex mutex_;  // only for wake_
  std::condition_variable_any wake_;
  std::jthread thread_;  // last, because it uses the members above
};

absl::Status EndOf(const grpc::Status& status, const CancelWatch& watch) {
  const bool cancelled = status.error_code() == grpc::StatusCode::CANCELLED;
  // gRPC's message does not name the caller as the cause.
  if (cancelled && watch.fired()) {
    return WithMessage(wire::FromGrpc(status), "the caller ended the job");
  }
  // A stopping service cancels its calls without details.
  if (cancelled && status.error_details().empty()) {
    return absl::UnavailableError("the service ended the call");
  }
  return wire::FromGrpc(status);
}

class Carrier {
 public:
  Carrier(Conversation& conversation, const JobOptions& options)
      : conversation_(conversation), options_(options) {}

  std::variant<v1::Report, AttemptFailure> Run(grpc::Channel& channel, absl::Time deadline) {
    if (deadline < absl::InfiniteFuture()) context_.set_deadline(GrpcDeadline(deadline));
    if (!options_.traceparent.empty()) context_.AddMetadata("traceparent", options_.traceparent);
    CancelWatch watch(options_.cancelled, context_);
    context_.set_initial_metadata_corked(true);  // leaves with Open
    stream_ = wire::OpenRawStream(channel, conversation_.method(), context_);
    stream_->Write(wire::Serialize(conversation_.Open()));  // Finish reports a failure
    absl::Status local = SendReady({});                     // this client's errors
    grpc::ByteBuffer message;
    while (local.ok() && stream_->Read(&message)) {
      local = Handle(message);
      if (local.ok()) local = SendMore();
    }
    if (!local.ok()) context_.TryCancel();
    if (sender_.joinable()) {
      sender_.request_stop();
      sender_.join();
    }
    const absl::Status remote = EndOf(stream_->Finish(), watch);
    local.Update(sent_);
    if (local.ok() && remote.ok()) {
      absl::StatusOr<v1::Report> report = conversation_.Finish();
      if (report.ok()) return *std::move(report);
      local = report.status();
    }
    const bool admitted = conversation_.admitted();
    if (local.ok()) {
      return AttemptFailure{
          .status = remote, .admitted = admitted, .retry_after = RetryAfterOf(context_)};
    }
    return AttemptFailure{
        .status = local, .admitted = admitted, .output_damaged = absl::IsDataLoss(local)};
  }

 private:
  absl::Status Handle(grpc::ByteBuffer& message) {
    v1::AttendResponse response;
    wire::Payload payload;
    if (wire::SplitPayload(message, wire::kOutputFields, *response.mutable_output(), payload)) {
      return conversation_.Handle(response, payload);
    }
    if (!wire::Parse(message, response)) return ProtocolError("a malformed message");
    return conversation_.Handle(response, wire::Payload(response.output().payload()));
  }

  // The receiving thread calls it after each message. Another thread sends rows, so that this one
  // reads on.
  absl::Status SendMore() {
    if (sender_.joinable()) {
      {
        const MutexLock lock(mutex_);
      }  // now SendAll waits, or will see the new state of sending()
      changed_.notify_one();
    } else if (conversation_.sending() == Sending::kRows) {
      sender_ = std::jthread([this](const std::stop_token& over) { SendAll(over); });
    } else {
      return SendReady({});
    }
    return absl::OkStatus();
  }

  // Runs in the sending thread.
  void SendAll(const std::stop_token& over) {
    while (sent_.ok() && !closed_ && !over.stop_requested()) {
      sent_ = SendReady(over);
      MutexLock lock(mutex_);
      // A deadline of the call bounds this wait.
      changed_.wait(lock, over, [this] {
        return closed_ || !sent_.ok() || conversation_.sending() != Sending::kNothing;
      });
    }
    if (!sent_.ok()) context_.TryCancel();
  }

  absl::Status SendReady(const std::stop_token& over) {
    while (!closed_ && !over.stop_requested()) {
      const Sending sending = conversation_.sending();
      if (sending == Sending::kNothing) break;
      if (sending == Sending::kEnd) {
        stream_->WritesDone();
        closed_ = true;
        break;
      }
      ASSIGN_OR_RETURN(const auto message, conversation_.Next(over));
      if (!message) continue;
      closed_ = !stream_->Write(message->bytes, message->options);  // Finish reports the cause
      if (!closed_) conversation_.Sent();
    }
    return absl::OkStatus();
  }

  Conversation& conversation_;
  const JobOptions& options_;
  grpc::ClientContext context_;  // before the stream, which uses it
  std::unique_ptr<wire::RawStream> stream_;
  Mutex mutex_;  // only for changed_
  std::condition_variable_any changed_;
  // Used by the sending thread once it runs:
  bool closed_ = false;  // no more writes
  absl::Status sent_;
  std::jthread sender_;  // last, because it uses the members above
};

}  // namespace

std::variant<v1::Report, AttemptFailure> Carry(Conversation& conversation,
                                               const std::shared_ptr<grpc::Channel>& channel,
                                               absl::Time deadline, const JobOptions& options) {
  return Carrier(conversation, options).Run(*channel, deadline);
}

}  // namespace hilbert_ring::client
