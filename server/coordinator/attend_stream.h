// The client's side of one job: gRPC's callbacks turned into reads and writes that block, have a
// deadline, and end at once when the job must stop.
//
//   auto stream = AttendStream::Make(context);            // its reactor
//   stream->AwaitFirst(began);                // no thread waits for the first message
//   stream->ReadAhead();                      // once the job is admitted
//   absl::StatusOr<bool> more = stream->Read(message, deadline);
//   stream->Write(response, deadline);        // returns when the transport has taken it
//   stream->End(status, {});                  // once, whatever is still under way
//
// Before the job is admitted nothing but the first message is read; then a few messages are read
// ahead, and one is being written: nothing else is buffered. A client that does not read stops
// Write, one that is not read from stops sending, by HTTP/2 flow control. Calls that block (gRPC's
// synchronous service) cannot end while they read; that a job can fail while its client is silent
// is why this is built on callbacks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/coordinator/job_stop.h"
#include "server/process/deadline.h"
#include "server/shard/job_memory.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// A request; the payload of a chunk lies beside it, in the transport's buffers.
struct AttendMessage {
  v1::AttendRequest request;
  wire::Payload payload;
  grpc::ByteBuffer buffer;  // holds the payload
};

class AttendStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Lives until gRPC is done with it and nobody holds it.
  static std::shared_ptr<AttendStream> Make(grpc::CallbackServerContext* context);

  // Reads the first message. Calls `began` when it is there or none will come, on a thread of
  // gRPC's, which must not be blocked. Once, before any Read.
  void AwaitFirst(std::function<void()> began);

  // Of the first message, once it is there.
  int64_t first_bytes();

  // The job is admitted: from here on messages are read before they are asked for.
  void ReadAhead();

  // What the call may take before that, in the account of all calls that are not admitted. Of
  // whoever holds the call's place.
  std::optional<JobMemory::Reservation>& waiting() { return waiting_; }

  // Requested when the client cancels, goes away, or its deadline passes.
  JobStop& stop() { return stop_; }

  // True with a message, false when the client has closed its side. The stop's reason, which is
  // DEADLINE_EXCEEDED (CLIENT_IDLE) when nothing came until the deadline. Used by one thread at a
  // time. INVALID_ARGUMENT (MALFORMED) for bytes that are no request.
  absl::StatusOr<bool> Read(AttendMessage& message, Deadline deadline) {
    return Read(message, deadline, stop_);
  }

  // Ends also when `stop` is requested, which the stream's own stop must request; nothing is lost.
  absl::StatusOr<bool> Read(AttendMessage& message, Deadline deadline, const JobStop& stop);

  // Any thread; messages leave one after the other. Errors as of Read, after which no write
  // succeeds.
  absl::Status Write(const v1::AttendResponse& response, Deadline deadline);

  // An output chunk with its payload, which `owner` keeps until the transport has let go of it.
  absl::Status Write(const v1::OutputChunk& chunk, std::string_view payload,
                     std::shared_ptr<const void> owner, Deadline deadline);

  // Ends the call with OK and the report.
  void End(const v1::Report& report);

  // Ends the call with an error. retry_after goes along as pushback.
  void End(const absl::Status& status, std::optional<std::chrono::milliseconds> retry_after);

  // Waits until the status has left; a client that does not take it in time is cut off.
  void AwaitDone(std::chrono::milliseconds limit);

 private:
  explicit AttendStream(grpc::CallbackServerContext* context) : context_(context) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  absl::Status Write(grpc::ByteBuffer response, Deadline deadline);

  void ReadNext(std::unique_lock<std::mutex>& lock);

  enum class Operation { kPending, kDone, kFailed };

  grpc::CallbackServerContext* const context_;  // valid until done_
  JobStop stop_;
  std::shared_ptr<AttendStream> self_;  // until OnDone
  std::function<void()> began_;         // until the first read is done
  std::optional<JobMemory::Reservation> waiting_;

  std::mutex write_turn_;  // before mutex_: held while a message is being written
  std::mutex mutex_;
  std::condition_variable_any changed_;
  grpc::ByteBuffer incoming_;             // gRPC's while reading_
  grpc::ByteBuffer outgoing_;             // gRPC's while write_ is kPending
  std::deque<grpc::ByteBuffer> arrived_;  // guarded by mutex_, like all below; not yet read
  size_t read_ahead_ = 0;                 // messages
  bool reading_ = false;
  bool ended_ = false;  // nothing more comes
  Operation write_ = Operation::kDone;
  bool done_ = false;
};

}  // namespace hilbert_ring::server
