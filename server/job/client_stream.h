// A job's call over gRPC's callbacks: reads and writes that block, have a deadline, and end at once
// when the job must stop. A blocking call of gRPC could not end while its client is silent.
//
//   auto stream = ClientStream::Make(context);            // its reactor
//   stream->AwaitFirst(began);                // no thread waits for the first message
//   stream->ReadAhead();                      // once the job has its workers
//   stream->Write(response, stop);            // waits until the message before is taken
//   stream->End(status, {});                  // once, also during a read or write
//
// Before the job has its workers only the first message is read, then a few are read ahead. The
// transport has at most a message to write; HTTP/2 flow control bounds all others. The pace counts
// from when the transport gets a message, not from when a thread wants to write.
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
  // Lives until gRPC and every holder are done with it. `time` outlives it.
  static std::shared_ptr<ClientStream> Make(grpc::CallbackServerContext* context,
                                            const PaceLimits& limits,
                                            const TimeSource& time = SystemTime());

  // Calls `began` when the first message or the end is there, on a thread of gRPC's that must not
  // be blocked. Once, before any Read.
  void AwaitFirst(std::function<void()> began);

  int64_t first_bytes();

  void ReadAhead() override;

  // Returns whether a message or the end is there by `due`. Called by the reading thread.
  bool AwaitMessage(Deadline due);

  // Memory of the waiting call until ReadAhead. The holder of the call's place uses it.
  std::optional<JobMemory::Reservation>& waiting() { return waiting_; }

  JobStop& stop() override { return stop_; }

  // Returns false when the client has closed its side. DEADLINE_EXCEEDED (CLIENT_IDLE), also as the
  // stop's reason, if the client is behind its pace; INVALID_ARGUMENT (INVALID_OPEN) for bytes that
  // are no request.
  absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) override;

  bool AwaitArrived(int64_t bytes, Input input) override;

  absl::Status Write(const v1::AttendResponse& response, const JobStop& stop) override;
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                             std::shared_ptr<const void> owner, Clock::duration patience,
                             const JobStop& stop, SendMode mode) override;
  absl::Status AwaitTaken(const JobStop& stop) override;
  void Offer(const v1::AttendResponse& response) override;

  // Ends the call with OK, held outputs and the report, once the message before is taken; with the
  // stop's reason otherwise.
  void End(const v1::Report& report);

  void End(const absl::Status& status, std::optional<std::chrono::milliseconds> retry_after);

  // Waits until the status has left; cuts off a client that does not take it in time.
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
  absl::Status Gone() const;  // why a call ends whose client has left

  // Waits for the message before; false if it is not taken within the patience.
  absl::StatusOr<bool> AwaitTurn(MutexLock& lock, Clock::duration patience, const JobStop& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the message outgoing_. The caller unlocks before it starts the write: gRPC may call back
  // before StartWrite (or StartRead) returns.
  void Prepare(grpc::ByteBuffer response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> ReadBytes(grpc::ByteBuffer& message, const JobStop& stop);
  bool ClaimRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // true if the caller is to start a read
  // Keeps an output for the report; false if that exceeds kMostHeldBytes.
  bool Hold(const v1::OutputChunk& chunk, std::string_view payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  std::condition_variable_any changed_;                           // of arrived_, ended_ and done_
  std::condition_variable_any written_;                           // of write_
  grpc::ByteBuffer incoming_;                                     // gRPC's while reading_
  grpc::ByteBuffer outgoing_;                                     // gRPC's while write_ is kPending
  std::deque<grpc::ByteBuffer> arrived_ ABSL_GUARDED_BY(mutex_);  // not yet read
  int64_t arrived_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t awaited_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: any
  size_t read_ahead_ ABSL_GUARDED_BY(mutex_) = 0;      // messages
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool sated_ ABSL_GUARDED_BY(mutex_) = false;  // reads nothing more until a Read waits
  std::vector<v1::OutputChunk> held_ ABSL_GUARDED_BY(mutex_);  // outputs that leave with the report
  int64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;            // nothing more comes
  Clock::time_point arrived_at_ ABSL_GUARDED_BY(mutex_);  // of the last message
  Operation write_ ABSL_GUARDED_BY(mutex_) = Operation::kDone;
  Clock::time_point write_began_ ABSL_GUARDED_BY(mutex_);
  Deadline write_due_ ABSL_GUARDED_BY(mutex_);
  int64_t write_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  ClientPace sends_ ABSL_GUARDED_BY(mutex_);
  ClientPace reads_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hilbert_ring::server
