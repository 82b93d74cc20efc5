// The story of one job at one worker.
//
//   RunOpen -> its work (run_work.h), with the plan from its shards -> memory, ring -> RunReady ->
//   order parts, rows, RowsDone
//                        compute begins when its first rows are there
//                        outputs leave as they become final -> RunComputed -> figures
//
// Three threads: the call's own receives rows, then watches for cancellation; one executes; one
// sends. A short job, whose outputs need not be sent, has its call's thread alone: handing it on
// from one to the next would take longer than its compute. Where its rows are there when it is
// opened, it says all that it has to say in one message: RunOpen -> RunWhole.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/run/executor.h"
#include "engine/run/shard_store.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/call_gate.h"
#include "server/shard/output_rows.h"
#include "server/shard/shared_memory.h"
#include "server/worker/cancel_look.h"
#include "server/worker/row_gate.h"
#include "server/worker/run_spans.h"
#include "server/worker/shard_files.h"
#include "server/worker/shard_rows.h"
#include "server/worker/worker_state.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

// Of RunResponses and RunRequests (server/shard/run_message.h).
using RunStream = grpc::ServerReaderWriterInterface<grpc::ByteBuffer, grpc::ByteBuffer>;

class RunCall {
 public:
  // place: opened with the first message; null: none is needed.
  RunCall(WorkerState& state, grpc::ServerContext& context, RunStream& stream,
          BlockingPlace* place = nullptr)
      : state_(state), context_(context), stream_(stream), place_(place) {}

  // The whole job. All its memory is free when the call is destroyed.
  absl::Status Serve();

 private:
  absl::Status Open();
  absl::Status OpenFiles();
  absl::StatusOr<Lane::Turn> AwaitTurn();
  absl::Status Allocate();
  absl::Status MakeStore();
  static absl::Status UnexpectedMessage(const char* expected);
  static absl::Status Malformed();
  static absl::Status Cancelled();
  void NoteCancelled();
  std::optional<Deadline> RowsDone();
  void CountEnd(const absl::Status& status, const WorkerCost& cost);
  bool IsShort() const;
  absl::Status Work();
  absl::Status WorkAlone();
  absl::Status ReceiveRows();
  absl::Status TakeDone(const ShardRows& rows);
  absl::Status ReadFiles();
  absl::StatusOr<Figures> ExecuteJob();
  absl::Status AwaitRows(int64_t rows);
  void Execute();
  void AwaitExecuted();
  void EndUnfed();
  void SendUntilExecuted();
  void SendNews();
  struct News {
    int64_t rows_final = 0;
    double fraction = 0;  // of the compute
    int64_t waiting_step = 0;
    int64_t layer = 0;  // of an encoder, that was computed
    int64_t file_bytes = 0;
  };
  absl::Status SendProgress(const News& news) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  v1::RunFailed Failure() const;
  static v1::RunFailed FailedOf(const absl::Status& error);
  absl::Status SendFailure();
  void SendFailed(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  absl::Status TellFileBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  void TellFailure();
  absl::Status SendEnd(int64_t rows_final) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  absl::Status SendOutputs(int64_t rows_final, grpc::WriteOptions options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  absl::Status SendFigures();
  absl::Status SendWhole();
  v1::WorkerReport Report();
  absl::Status Send(const v1::RunResponse& response, grpc::WriteOptions options = {});
  absl::Status Send(const grpc::ByteBuffer& message, grpc::WriteOptions options);

  WorkerState& state_;
  grpc::ServerContext& context_;
  RunStream& stream_;
  BlockingPlace* const place_;
  const CancelLook look_{[this] { return context_.IsCancelled(); }};

  v1::RunOpen open_;
  Lane* lane_ = nullptr;           // once opened
  std::unique_ptr<RunWork> work_;  // once opened
  int rank_ = 0;
  int64_t idle_bytes_ = 0;                   // of the process, before the job's memory
  std::atomic<int64_t> resident_bytes_ = 0;  // at the end of compute
  std::optional<JobMemory::Reservation> reservation_;
  std::optional<RingTable::Lease> ring_;
  std::string transport_ = "none";
  std::shared_ptr<SharedMemory> shared_;  // null: the shard is this process's alone
  std::unique_ptr<ShardStore> store_;
  int64_t file_bytes_read_ = 0, file_bytes_written_ = 0;  // once it has ended
  std::unique_ptr<ShardFiles> files_;                     // null: rows come from the coordinator
  Lane::Turn turn_;  // where there are files the executing thread gives it back
  std::optional<OutputRows> output_;
  std::optional<wire::SlicePool> pool_;  // of outputs on their way
  bool short_ = false;                   // set before there are other threads
  bool whole_ = false;                   // likewise: all is said in one message
  std::optional<RunSpans> spans_;        // where they are asked for

  Mutex mutex_;
  ConditionVariable changed_;
  // Held while messages are put together and sent.
  Mutex sending_ ABSL_ACQUIRED_BEFORE(mutex_);
  int64_t rows_sent_ ABSL_GUARDED_BY(sending_) = 0;  // local rows of the outputs
  News sent_news_ ABSL_GUARDED_BY(sending_);
  Deadline progress_due_ ABSL_GUARDED_BY(sending_);
  bool all_sent_ ABSL_GUARDED_BY(sending_) = false;
  absl::Status sent_ ABSL_GUARDED_BY(sending_);  // the first error

  int64_t rows_final_seen_ = 0;  // the sending thread's

  std::atomic<Deadline> fed_until_ = Deadline::max();    // while rows are awaited
  std::atomic<Deadline> compute_due_ = Deadline::max();  // once all rows are there
  Deadline ready_;  // since when rows are awaited; set before there are other threads
  RowGate arrived_;
  std::atomic<bool> cancelled_ = false;
  std::optional<Deadline> cancelled_at_;  // the call's own thread's
  News news_ ABSL_GUARDED_BY(mutex_);
  std::optional<Deadline> rows_done_ ABSL_GUARDED_BY(mutex_);  // since when all rows are there
  bool executed_ ABSL_GUARDED_BY(mutex_) = false;
  // Written before executed_ is set, read after.
  double compute_seconds_ = 0;  // from when all rows were there to the last result
  absl::StatusOr<Figures> figures_ = absl::InternalError("not run");
};

}  // namespace hilbert_ring::server
