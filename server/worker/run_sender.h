// Sends a run's messages to the coordinator, mostly from the sender thread.
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

v1::RunFailed FailedOf(const absl::Status& error);

class RunSender {  // thread-safe
 public:
  // References outlive it. report: called once, after all outputs.
  RunSender(RunReplies replies, RunCourse& course, RunWork& work, ShardOutput& output, RunMode mode,
            std::function<v1::WorkerReport()> report);

  absl::Status Write(const v1::RunResponse& response);  // no message leaves after the run's failure

  // Writes the course's news (ReplyIn). An error fails the run.
  void SendNews();

  void SendUntilComputed();

  // Called by the executor: more rows are final, or compute has returned. Sends itself if outputs
  // stay in place, otherwise wakes the sender: it must not wait for the coordinator or a disk.
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
  Mutex sending_;  // over a message's making and writing; before the course's
  RunReplies replies_ ABSL_GUARDED_BY(sending_);
  int64_t rows_put_ ABSL_GUARDED_BY(sending_) = 0;  // local rows
  bool told_failure_ ABSL_GUARDED_BY(sending_) = false;
};

}  // namespace hilbert_ring::server
