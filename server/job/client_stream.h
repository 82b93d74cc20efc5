// The client's side of one job: gRPC's callbacks turned into reads and writes that block, have a
// deadline, and end at once when the job must stop.
//
//   auto stream = ClientStream::Make(context);            // its reactor
//   stream->AwaitFirst(began);                // no thread waits for the first message
//   stream->ReadAhead();                      // once the job has its workers
//   absl::StatusOr<bool> more = stream->Read(message, stop);
//   stream->Write(response, stop);            // waits for the message before it to be taken
//   stream->End(status, {});                  // once, whatever is still under way
//
// Before the job has its workers nothing but the first message is read; then a few messages are
// read ahead, and one is being written: nothing else is buffered. A client that does not read stops
// Write, one that is not read from stops sending, by HTTP/2 flow control. How long it may do so is
// its pace's to say, which counts from when a message was handed to the transport, not from when
// somebody wanted to write. Calls that block (gRPC's synchronous service) cannot end while they
// read; that a job can fail while its client is silent is why this is built on callbacks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/client_pace.h"
#include "server/job/job_client.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "server/process/time_source.h"
#include "server/shard/job_memory.h"

namespace hilbert_ring::server {

class ClientStream : public JobClient,
                     public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Lives until gRPC is done with it and nobody holds it. How long the client takes goes by `time`,
  // which outlives it.
  static std::shared_ptr<ClientStream> Make(grpc::CallbackServerContext* context,
                                            const PaceLimits& limits,
                                            const TimeSource& time = SystemTime());

  // Reads the first message. Calls `began` when it is there or none will come, on a thread of
  // gRPC's, which must not be blocked. Once, before any Read.
  void AwaitFirst(std::function<void()> began);

  // Of the first message, once it is there.
  int64_t first_bytes();

  void ReadAhead() override;

  // Whether a message is there, or none will come, by `due`. By the thread that reads.
  bool AwaitMessage(Deadline due);

  // What the call may take before that, in the account of all calls that wait. Of whoever holds the
  // call's place.
  std::optional<JobMemory::Reservation>& waiting() { return waiting_; }

  JobStop& stop() override { return stop_; }

  // False when the client has closed its side. The stop's reason is DEADLINE_EXCEEDED when nothing
  // came at the client's pace, or too little in all (CLIENT_IDLE). INVALID_ARGUMENT
  // (INVALID_OPEN) for bytes that are no request.
  absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) override;

  bool AwaitArrived(int64_t bytes, Input input) override;

  // Messages are taken by the transport, which the client's reading makes room in.
  using JobClient::Write;
  absl::Status Write(const v1::AttendResponse& response, const JobStop& stop,
                     SendMode mode) override;
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                             std::shared_ptr<const void> owner, Clock::duration patience,
                             const JobStop& stop, SendMode mode) override;
  absl::Status AwaitTaken(const JobStop& stop) override;
  void Offer(const v1::AttendResponse& response) override;

  // Ends the call with OK and the report, with the outputs that leave with it, once the client has
  // taken what was written before; with the stop's reason if it does not.
  void End(const v1::Report& report);

  // Ends the call with an error. retry_after goes along as retry_after.
  void End(const absl::Status& status, std::optional<std::chrono::milliseconds> retry_after);

  // Waits until the status has left; a client that does not take it in time is cut off.
  void AwaitDone(std::chrono::milliseconds limit);

 private:
  ClientStream(grpc::CallbackServerContext* context, const PaceLimits& limits,
               const TimeSource& time)
      : context_(context),
        idle_(limits.idle),
        time_(time),
        sends_(limits, "sent"),
        reads_(limits, "read") {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  absl::Status Gone() const;  // why the call ends where the client is not there any more

  // Until the transport has taken the message before; false when it has not within the patience.
  absl::StatusOr<bool> AwaitTurn(MutexLock& lock, Clock::duration patience, const JobStop& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The message becomes outgoing_, whose write the caller starts when it has unlocked: gRPC may
  // call back before StartWrite returns, as it may before StartRead does.
  void Prepare(grpc::ByteBuffer response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> ReadBytes(grpc::ByteBuffer& message, const JobStop& stop);
  // Whether the next read is to be started: none is under way, and not enough has arrived.
  bool ClaimRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes an output that leaves with the report; false where too much would.
  bool Hold(const v1::OutputChunk& chunk, std::string_view payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the reader is to look: at each message, or when it has what it awaits.
  bool EnoughArrived() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  enum class Operation { kPending, kDone, kFailed };

  grpc::CallbackServerContext* const context_;  // valid until done_
  const std::chrono::milliseconds idle_;
  const TimeSource& time_;
  JobStop stop_;
  std::shared_ptr<ClientStream> self_;  // until OnDone
  std::function<void()> began_;         // until the first read is done
  std::optional<JobMemory::Reservation> waiting_;

  Mutex mutex_;
  std::condition_variable_any changed_;  // what has arrived, and the call's end
  std::condition_variable_any written_;  // one waits for its turn to write
  grpc::ByteBuffer incoming_;            // gRPC's while reading_
  grpc::ByteBuffer outgoing_;            // gRPC's while write_ is kPending
  std::deque<grpc::ByteBuffer> arrived_ ABSL_GUARDED_BY(mutex_);  // not yet read
  int64_t arrived_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t awaited_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: any
  size_t read_ahead_ ABSL_GUARDED_BY(mutex_) = 0;      // messages
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  // What was awaited has come: nothing more is read until somebody wants more.
  bool sated_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::OutputChunk> held_ ABSL_GUARDED_BY(mutex_);  // they leave with the report
  int64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;            // nothing more comes
  Clock::time_point arrived_at_ ABSL_GUARDED_BY(mutex_);  // when something came last
  Operation write_ ABSL_GUARDED_BY(mutex_) = Operation::kDone;
  Clock::time_point write_began_ ABSL_GUARDED_BY(mutex_);
  Deadline write_due_ ABSL_GUARDED_BY(mutex_);
  int64_t write_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  ClientPace sends_ ABSL_GUARDED_BY(mutex_);
  ClientPace reads_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hilbert_ring::server
