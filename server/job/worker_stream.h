// A worker's part in a run: its Run stream, its shard, and its replies.
//
//   stream.Make();                    // its shard
//   stream.Open(run, delivered);      // starts its reader
//   stream.Settle();                  // all workers are ready: who shares memory is known
//   stream.SendOrder(router);         // then rows by Write, or by shard().Keep and SendArrived
//   stream.FinishRows();
//   stream.Join();                    // before the destructor
//
// The job's thread sends. The reader forwards outputs, so that a slow client slows the worker; of a
// shared shard a third thread may do it (output_forwarder.h). A worker that is lost before its end,
// and a failed write, stop the job.
//
// The listener is called without mutex_, and may lock before it asks the stream: a run's lock comes
// before a stream's.
//
// A small job, whose rows are in its shard already, needs no reader to wake its thread: it calls
// OpenWithRows in place of Open, and Poll again and again.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/job/job_record.h"
#include "server/job/output_forwarder.h"
#include "server/job/worker_shard.h"
#include "server/process/job_stop.h"
#include "server/rows/row_router.h"
#include "server/shard/run_message.h"
#include "wire/polled_stream.h"
#include "wire/raw_stream.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

struct WorkerReplies {
  bool ready = false;
  bool shares = false;  // its shard's memory
  bool read = false;    // all rows that it reads itself are there
  bool computed = false;
  bool reported = false;       // its figures
  bool ended = false;          // its call, and its outputs have gone
  double compute_seconds = 0;  // since the last row, by its clock, at most the time of the wait
};

class WorkerStream {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;

    virtual void Changed() = 0;  // the worker is ready, has computed or has ended
    virtual void Progressed(int rank, const v1::RunProgress& progress) = 0;
    // Whether the reader waits for the client. The worker moved.
    virtual void Forwarding(int rank, bool forwarding) = 0;
    virtual absl::StatusOr<bool> Output(int rank, const v1::OutputChunk& chunk,
                                        std::string_view payload,
                                        const std::shared_ptr<const void>& owner,
                                        int64_t first_slot, Clock::duration patience) = 0;
    // An invalid message, or an early end. Both functions request the stop before they return.
    virtual void Misbehaved(int rank, const absl::Status& how) = 0;
    // An error that the worker reported, or that ended its stream; OK: without figures.
    virtual void Failed(int rank, const grpc::Status& status) = 0;
  };

  // References outlive the stream.
  WorkerStream(const RunParts& parts, int rank, Listener& listener, JobStop& stop);

  // The job's thread calls the following:

  absl::Status Make();  // errors: HELD_ROWS_MEMORY

  void Open(uint64_t run, const Delivered& delivered);  // delivered: outputs to omit

  // Open, once order and all rows are in an offered shard and nothing is delivered. No message of
  // rows follows, unless the worker turns the memory down.
  void OpenWithRows(uint64_t run);

  // After OpenWithRows: handles one message or the end, if it comes by then.
  void Poll(std::chrono::system_clock::time_point until);

  void Settle();  // the worker is ready: fixes whether it shares its shard

  // Rows go by messages. False until Settle for a worker that was offered memory.
  bool takes_messages() const { return route_ == RowRoute::kMessages; }

  bool held() const { return shard_.held(); }
  bool turned_down() const { return shard_.offered() && takes_messages(); }

  WorkerShard& shard() { return shard_; }
  const WorkerShard& shard() const { return shard_; }

  // Errors here and below: the stop's reason. message: a RunRequest (server/shard/run_message.h).
  absl::Status Write(const grpc::ByteBuffer& message, grpc::WriteOptions options = {});

  // Payloads to and from this worker, each of the job's MostPayloadBytes.
  wire::SlicePool& pool() { return pool_; }

  absl::Status SendOrder(const RowRouter& router);  // to shared memory or by messages

  absl::Status SendArrived();  // reports new rows of a shared shard

  // Sent while other workers get rows, after a long silence.
  absl::Status SendKeepalive(Clock::time_point now);

  absl::Status FinishRows();

  void Join();

  HeldShard Release();  // after Join

  // Any thread may call the following:

  void CancelUnlessEnded();

  Clock::duration WritingFor(Clock::time_point now) const;  // of a waiting write; 0 without one

  WorkerReplies replies() const;
  v1::WorkerReport report() const;

  Clock::duration ComputingFor(Clock::time_point now) const;  // since the last row; 0 before

 private:
  enum class RowRoute { kUnsettled, kSharedMemory, kMessages };

  const Member& member() const { return parts_.member(rank_); }
  Clock::time_point Now() const { return parts_.time().Now(); }
  void Begin();
  v1::RunRequest OpenRequest(uint64_t run, const Delivered& delivered) const;
  bool WriteNow(const grpc::ByteBuffer& message, grpc::WriteOptions options);
  void NoteFinished();
  void NoteDeparted();
  void Note(absl::FunctionRef<void(WorkerReplies&)> change);  // with mutex_ held

  // The reader, or the job's thread without one, calls the following:
  void Read();
  void EndReading(const absl::Status& status);
  absl::Status Handle(RunMessage<v1::RunResponse>& message);
  void HandleReady(bool shares_memory);
  absl::Status HandleOutput(const RunMessage<v1::RunResponse>& message);
  absl::Status HandleFinal(int64_t rows);
  void HandleComputed(const v1::RunComputed& computed);
  void TakeFigures(v1::WorkerReport& figures);
  absl::Status HandleWhole(v1::RunWhole& whole);

  const RunParts& parts_;
  const int rank_;
  Listener& listener_;
  JobStop& stop_;
  grpc::ClientContext context_;
  const std::stop_callback<std::function<void()>> cancel_;
  // Either is open: call_ for a writer and a reader, polled_ for a single thread.
  std::unique_ptr<wire::RawStream> call_;
  std::optional<wire::PolledStream> polled_;
  wire::SlicePool pool_;

  // The job's thread's:
  WorkerShard shard_;
  RowRoute route_ = RowRoute::kUnsettled;
  int64_t sent_prefix_ = 0;
  bool opened_with_rows_ = false;
  Clock::time_point sent_at_;  // the last message
  static constexpr Clock::duration kNoWrite = Clock::duration::min();
  std::atomic<Clock::duration> writing_since_ = kNoWrite;  // for any thread
  RunMessage<v1::RunResponse> polled_message_;
  KeptThreads::Task reader_;

  // Forwards an offered shard until it is turned down. Set before the reader starts, then its own.
  std::optional<OutputForwarder> forwarder_;

  mutable Mutex mutex_;  // held over no call
  WorkerReplies replies_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerReport report_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point finished_ ABSL_GUARDED_BY(mutex_);        // the rows
  const std::stop_callback<std::function<void()>> departed_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
