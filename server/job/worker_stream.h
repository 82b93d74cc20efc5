// One worker's part in a run: its Run stream, its shard, and what it has said.
//
//   WorkerStream stream(options, rank, listener, stop);
//   stream.Make(delivered);           // its shard
//   stream.Open(run, delivered);      // its memory is offered, and its reader begins
//   stream.Settle();                  // all workers are ready: it is known who shares memory
//   stream.SendOrder(router);
//   stream.shard().Keep(...);         // rows of a chunk that this process holds
//   stream.Write(message);            // rows for a worker that shares no memory
//   stream.SendArrived();
//   stream.FinishRows();
//   stream.CancelUnlessEnded();
//   stream.Join();
//
// The job's thread sends. The stream's own thread reads, and hands outputs on: a client that reads
// slowly slows the worker, and nothing is kept here. Outputs of a shared shard that the client does
// not take at once are handed on by a third thread (output_forwarder.h). A worker that is lost
// before it has ended, and a write that fails, stop the job.
//
// Each field is the job's thread's, the reader's, or guarded by mutex_, as it says. The listener is
// called without mutex_, and may lock before it asks the stream: a run's lock comes before a
// stream's.
//
// A small job, whose rows are in its shard already, needs no reader: its thread has nothing to do
// but to hear what the worker says, and what it hears itself no other thread has to wake it for.
//
//   stream.OpenWithRows(run);         // in place of Open
//   stream.Poll(until);               // again and again, in place of waiting for the reader
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
#include "server/job/job_run_options.h"
#include "server/job/output_forwarder.h"
#include "server/job/worker_shard.h"
#include "server/process/job_stop.h"
#include "server/rows/row_router.h"
#include "server/shard/run_message.h"
#include "wire/polled_stream.h"
#include "wire/raw_stream.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

// What a worker has reported.
struct WorkerReplies {
  bool ready = false;
  bool shares = false;  // its shard's memory
  bool read = false;    // it has all rows that it reads itself
  bool computed = false;
  bool reported = false;       // its figures
  bool ended = false;          // its call, and its outputs have gone
  double compute_seconds = 0;  // since the last row, by its clock, no longer than we have waited
};

class WorkerStream {
 public:
  // Called by the stream's threads.
  class Listener {
   public:
    virtual ~Listener() = default;

    // The worker is ready, has computed or has ended: who waits for that looks again.
    virtual void Changed() = 0;
    virtual void Progressed(int rank, const v1::RunProgress& progress) = 0;
    virtual void Moved(int rank) = 0;
    // The reader waits for the client, and hears nothing of the worker, or does so no more.
    virtual void Forwarding(int rank, bool forwarding) = 0;
    // An output for the client; as OutputForwarder::Output.
    virtual absl::StatusOr<bool> Output(int rank, const v1::OutputChunk& chunk,
                                        std::string_view payload,
                                        const std::shared_ptr<const void>& owner,
                                        int64_t first_slot, Clock::duration patience) = 0;
    // It sent what cannot be, or ended before its time. The stop has been requested when this
    // returns, with this reason if there was none before.
    virtual void Misbehaved(int rank, const absl::Status& how) = 0;
    // The worker said so, or its stream ended so, which is not well without figures either. The
    // stop has been requested when this returns.
    virtual void Failed(int rank, const grpc::Status& status) = 0;
  };

  // All must outlive the stream.
  WorkerStream(const JobRunOptions& options, int rank, Listener& listener, JobStop& stop);

  // After Join.
  ~WorkerStream() = default;

  // The next are the job's thread's.

  // The shard. delivered: what is left out of the outputs. Errors: HELD_ROWS_MEMORY.
  absl::Status Make(const Delivered& delivered);

  // Sends RunOpen. run: this run's number.
  void Open(uint64_t run, const Delivered& delivered);

  // The same, once the order and all rows are in a shard that is offered, and nothing is delivered
  // yet. The worker is then told of no rows, unless it turns the memory down.
  void OpenWithRows(uint64_t run);

  // After OpenWithRows: hears one message or the end, if any comes by then.
  void Poll(std::chrono::system_clock::time_point until);

  // The worker is ready: from here on it is settled whether it shares its shard.
  void Settle();

  // Rows go by messages. Workers that were offered memory take none until it is settled that they
  // do not share it.
  bool takes_messages() const { return route_ == RowRoute::kMessages; }

  // It was offered memory and has turned it down.
  bool turned_down() const { return shard_.offered() && takes_messages(); }

  WorkerShard& shard() { return shard_; }
  const WorkerShard& shard() const { return shard_; }

  // Errors here and below: the stop's reason.
  // message: a RunRequest (server/shard/run_message.h).
  absl::Status Write(const grpc::ByteBuffer& message, grpc::WriteOptions options = {});

  // Of payloads to and from this worker, each of MostPayloadBytes of the job.
  wire::SlicePool& pool() { return pool_; }

  // Written to shared memory or sent, by how rows go.
  absl::Status SendOrder(const RowRouter& router);

  // How far the rows of a shared shard have come, where that is news.
  absl::Status SendArrived();

  // That rows come for others, where the worker has heard nothing for long.
  absl::Status SendKeepalive(Clock::time_point now);

  absl::Status FinishRows();

  // Any thread.
  void CancelUnlessEnded();

  // Any thread: how long the write that is under way has waited for the worker; 0 where none is.
  Clock::duration WritingFor(Clock::time_point now) const;

  // Waits for the reader, which ends when the call does; where there is none, hears until then.
  void Join();

  // After Join: the shard, for the next execution.
  HeldShard Release();

  // Any thread: what the worker has said.
  WorkerReplies replies() const;
  v1::WorkerReport report() const;

  // Any thread: since all rows are there, by our clock; 0 before.
  Clock::duration ComputingFor(Clock::time_point now) const;

 private:
  enum class RowRoute { kUnsettled, kSharedMemory, kMessages };

  const Member& member() const { return *options_.members[rank_]; }
  void Begin();
  bool WriteNow(const grpc::ByteBuffer& message, grpc::WriteOptions options);
  void NoteFinished();
  void NoteDeparted();
  void Note(absl::FunctionRef<void(WorkerReplies&)> change);  // called with mutex_ held

  // The reader's, or the job's thread's where there is none.
  void Read();
  void EndReading(const absl::Status& status);
  absl::Status Handle(RunMessage<v1::RunResponse>& message);
  absl::Status HandleReady(const v1::RunReady& ready);
  absl::Status HandleOutput(const RunMessage<v1::RunResponse>& message);
  absl::Status HandleFinal(const v1::RowsFinal& final);
  void HandleComputed(const v1::RunComputed& computed);
  void TakeFigures(v1::WorkerReport& figures);
  absl::Status HandleWhole(v1::RunWhole& whole);

  const JobRunOptions& options_;
  const int rank_;
  Listener& listener_;
  JobStop& stop_;
  grpc::ClientContext context_;
  const std::stop_callback<std::function<void()>> cancel_;
  // Of an open stream one of them: one thread writes and one reads, or one does both.
  std::unique_ptr<wire::RawStream> call_;
  std::optional<wire::PolledStream> polled_;
  wire::SlicePool pool_;

  // The job's thread's:
  WorkerShard shard_;
  RowRoute route_ = RowRoute::kUnsettled;
  int64_t sent_prefix_ = 0;
  bool opened_with_rows_ = false;  // with RunOpen, that all are there
  Clock::time_point sent_at_;      // anything
  static constexpr Clock::duration kNoWrite = Clock::duration::min();
  std::atomic<Clock::duration> writing_since_ = kNoWrite;  // read by any thread
  RunMessage<v1::RunResponse> polled_message_;
  KeptThreads::Task reader_;

  // The reader's: outputs of an offered shard, until it is turned down. Set before the reader
  // begins.
  std::optional<OutputForwarder> forwarder_;

  mutable Mutex mutex_;  // held over no call
  WorkerReplies replies_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::WorkerReport> report_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point finished_ ABSL_GUARDED_BY(mutex_);        // the rows
  const std::stop_callback<std::function<void()>> departed_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
