// Messages out: what a run tells the coordinator, by its sender thread, and where there is none, or
// that one may wait, by others.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/worker/run_course.h"
#include "server/worker/run_phase.h"
#include "server/worker/run_replies.h"
#include "server/worker/run_work.h"
#include "server/worker/shard_output.h"

namespace hilbert_ring::server {

// As the coordinator hears of it.
v1::RunFailed FailedOf(const absl::Status& error);

// Thread-safe.
class RunSender {
 public:
  // All but `replies` outlives it. report: asked for once, when all outputs have been put.
  RunSender(RunReplies replies, RunCourse& course, RunWork& work, ShardOutput& output, RunMode mode,
            std::function<v1::WorkerReport()> report);

  // One message. None leaves once the run's failure is told.
  absl::Status Write(const v1::RunResponse& response);

  // Writes what the course has news of (ReplyIn). What cannot be written or put fails the run.
  void SendNews();

  // The sender thread: as news come, until compute has returned.
  void SendUntilComputed();

  // By the executor: more rows are final and others follow, or compute has returned. It waits
  // neither for the coordinator nor for a disk: where outputs stay in place it sends, else it wakes
  // the sender.
  void NoteRowsFinal();
  void NoteComputed();

 private:
  absl::Status WriteEnd(int64_t rows_final) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  absl::Status PutOutputs(int64_t rows_final, grpc::WriteOptions options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);
  void WriteFailure(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(sending_);

  RunCourse& course_;
  RunWork& work_;
  ShardOutput& output_;
  const RunMode mode_;
  const std::function<v1::WorkerReport()> report_;
  Mutex sending_;  // held while messages are put together and written; before the course's
  RunReplies replies_ ABSL_GUARDED_BY(sending_);
  int64_t rows_put_ ABSL_GUARDED_BY(sending_) = 0;  // local rows of the outputs
  bool told_failure_ ABSL_GUARDED_BY(sending_) = false;
};

}  // namespace hilbert_ring::server
