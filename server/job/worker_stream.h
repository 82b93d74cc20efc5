// A worker's part in a run: its Run stream, its shard, and its replies.
//
//   stream.Make();                    // its shard
//   stream.Open(run, delivered);      // starts its reader
//   stream.Settle();                  // all workers are ready: who shares memory is known
//   stream.SendOrder(router);         // then rows by Write, or by Keep and SendArrived
//   stream.FinishRows();
//   stream.Join();                    // before the destructor
//
// The job's thread sends. The reader forwards outputs, so that a slow client slows the worker; of a
// shared shard a third thread may do it (output_forwarder.h). A worker that is lost before its end,
// and a failed write, stop the job.
//
// The run is called without mutex_, and may lock before it asks the stream: a run's lock comes
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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/job/job_record.h"
#include "server/job/output_forwarder.h"
#include "server/process/job_stop.h"
#include "server/rows/held_rows.h"
#include "server/rows/row_router.h"
#include "server/shard/arrived_rows.h"
#include "server/shard/run_message.h"
#include "wire/payload.h"
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

class JobRun;

class WorkerStream {
 public:
  // References outlive the stream.
  WorkerStream(const RunParts& parts, int rank, JobRun& run, JobStop& stop);

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
  bool takes_messages() const { return shares_ == false; }

  // The shard: in memory that both processes share, a copy of the rows, or not held. An offered
  // shard stays until the worker turns it down, because another thread may read outputs from it.
  bool held() const { return shard_.rows.has_value(); }
  bool offered() const { return arrived_.has_value(); }  // to the worker as its own
  bool turned_down() const { return offered() && takes_messages(); }
  const HostShard& rows() const { return *shard_.rows; }  // if held
  const std::shared_ptr<SharedMemory>& memory() const { return shard_.memory; }

  // Takes the run's rows from the payload, also if not held.
  absl::Status Keep(TensorKind tensor, const RowRun& run, wire::PayloadReader& payload);

  void NoteArrived(const RowRun& run) { arrived_->Add(run.local_row, run.rows); }

  void BecomeCopy();  // the worker has its own shard: keeps this one as a copy if there is memory

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
  const Member& member() const { return parts_.member(rank_); }
  Clock::time_point Now() const { return parts_.time().Now(); }
  // Without memory rows are sent and not held; but if that lost held rows it is an error, as of
  // HeldRows::Carry.
  absl::Status MakeShard();
  std::unique_ptr<JobMemory::Reservation> ReserveCopy(int64_t bytes) const;  // null: no memory
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
  void HandleComputed(const v1::RunComputed& computed);
  void TakeFigures(v1::WorkerReport& figures);
  absl::Status HandleWhole(v1::RunWhole& whole);

  const RunParts& parts_;
  const int rank_;
  JobRun& run_;
  JobStop& stop_;
  grpc::ClientContext context_;
  const std::stop_callback<std::function<void()>> cancel_;
  // Either is open: call_ for a writer and a reader, polled_ for a single thread.
  std::unique_ptr<wire::RawStream> call_;
  std::optional<wire::PolledStream> polled_;
  wire::SlicePool pool_;

  // The job's thread's:
  HeldShard shard_;
  std::optional<ArrivedRows> arrived_;  // of an offered shard
  std::optional<bool> shares_;          // the worker its shard; empty: unsettled
  int64_t sent_prefix_ = 0;
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
