// A run: a job's part at this worker. run_course.h has its phases.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
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
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/job_memory.h"
#include "server/shard/run_message.h"
#include "server/shard/shared_memory.h"
#include "server/worker/active_calls.h"
#include "server/worker/file_rows.h"
#include "server/worker/ring_table.h"
#include "server/worker/run_course.h"
#include "server/worker/run_spans.h"
#include "server/worker/run_work.h"
#include "server/worker/shard_ways.h"
#include "server/worker/shared_rows.h"
#include "server/worker/worker_state.h"

namespace hilbert_ring::server {

// The way of a run's rows and outputs.
enum class RowsWay {
  kMessages,
  kInPlace,  // shared memory, where the coordinator writes rows to their places and reads outputs
  kCopied,   // shared memory, copied to and from a device
  kFiles,
};

// Ring, shard and the way of rows in and out, which a run holds while it has its lane.
struct RunShard {
  static constexpr int64_t kLeastKept = 8 << 20;  // fresh pages of less are few

  std::optional<RingTable::Lease> ring;  // empty: no exchange
  std::string transport = "none";        // of the ring
  std::shared_ptr<MappedShard> shared;   // null: not shared
  std::shared_ptr<Buffer> own;           // null: shared, or of a device
  bool used = false;                     // may contain outputs of an earlier run
  RowsWay rows = RowsWay::kMessages;
  std::unique_ptr<ShardStore> store;
  std::unique_ptr<ShardWay> way;

  bool in_place() const { return rows == RowsWay::kInPlace; }
  // Neither rows nor outputs are in messages.
  bool in_shared_memory() const { return in_place() || rows == RowsWay::kCopied; }

  void ClearOutputs();  // before compute: removes outputs of an earlier run
};

class RunCall {
 public:
  RunCall(WorkerState& state, grpc::ServerContext& context, RunStream& stream)
      : state_(state), context_(context), stream_(stream) {}

  // Returns the run's error, which the coordinator also gets as a message. The destructor frees all
  // memory of the run.
  absl::Status Serve();

 private:
  absl::Status Open();
  absl::Status Read();
  absl::Status AwaitLane();
  absl::Status Allocate();
  absl::Status Reserve();
  absl::Status MakeShard();  // run_shard.cc
  bool IsShort() const;
  void RunAlone();
  void RunInThreads();
  bool AwaitMessage(RunMessage<v1::RunRequest>& message, std::chrono::milliseconds timeout);
  absl::Status Receive();
  absl::Status TakeMessages();
  void Execute();
  absl::StatusOr<Figures> Compute();
  void AwaitComputed();
  void Release();

  // run_call_send.cc, mostly called by the sender's thread:
  absl::Status Write(const v1::RunResponse& response);  // no message leaves after the run's failure
  void SendNews();  // writes the course's news; an error fails the run
  void SendUntilComputed();
  void NoteRowsFinal();
  absl::Status WriteEnd(const RunNews& news) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  void WriteFailure(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  void NoteFailureBeside();
  v1::WorkerReport Report();
  void Count(const absl::Status& status) const;

  WorkerState& state_;
  grpc::ServerContext& context_;
  RunStream& stream_;
  ActiveCalls::Entry entry_{state_.calls, context_};
  RunCourse course_{[this] { return context_.IsCancelled(); }};

  v1::RunOpen open_;
  Lane* lane_ = nullptr;
  std::unique_ptr<RunWork> work_;
  RunFiles files_;   // passed by path
  Lane::Turn turn_;  // returned before outputs leave, if they need no device
  std::optional<JobMemory::Reservation> reservation_;
  std::optional<RunShard> shard_;
  std::optional<RunSpans> spans_;            // for a trace
  bool short_ = false;                       // the call's thread computes and sends
  bool answers_once_ = false;                // a short run with one message out (RunWhole)
  int64_t idle_bytes_ = 0;                   // of the process, before the run
  std::atomic<int64_t> resident_bytes_ = 0;  // at the end of compute
  // The executor's thread has figures_ until the phase is kSending. The sender thread has it from
  // then on.
  absl::StatusOr<Figures> figures_ = absl::InternalError("not run");
  v1::WorkerReport report_;

  Mutex sending_;  // over a message's making and writing; before the course's
  RunReplies replies_ ABSL_GUARDED_BY(sending_){stream_, course_};
  bool told_failure_ ABSL_GUARDED_BY(sending_) = false;
};

}  // namespace hilbert_ring::server
