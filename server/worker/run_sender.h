// Sends a run's messages to the coordinator, mostly from the sender thread.
//
//   RunSender sender(replies, course, work, output, mode, report);
//   sender.SendUntilComputed();        // sender thread: progress, and outputs as they are final
//   sender.NoteRowsFinal();            // executor: more rows are final
//   sender.NoteComputed();             // executor: compute has returned
//   sender.SendNews();                 // the end or the failure
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

// Returns the message of a run that failed with `error`.
v1::RunFailed FailedOf(const absl::Status& error);

class RunSender {  // thread-safe
 public:
  // References outlive the sender. report: called once, after all outputs.
  RunSender(RunReplies replies, RunCourse& course, RunWork& work, ShardOutput& output, RunMode mode,
            std::function<v1::WorkerReport()> report);

  // Writes nothing once the run's failure is written.
  absl::Status Write(const v1::RunResponse& response);

  // Writes the messages that are due in the run's phase (ReplyIn). A write error fails the run.
  void SendNews();

  // Runs in the sender thread: sends news until compute has returned or the run has failed.
  void SendUntilComputed();

  // The executor calls these: more rows are final, or compute has returned. The executor must not
  // wait for the coordinator or a disk, so they wake the sender thread. If outputs stay in place,
  // messages are small, and the executor sends them itself.
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
  // Held while a message is made and written. Taken before the course's mutex.
  Mutex sending_;
  RunReplies replies_ ABSL_GUARDED_BY(sending_);
  int64_t rows_put_ ABSL_GUARDED_BY(sending_) = 0;  // local rows
  bool told_failure_ ABSL_GUARDED_BY(sending_) = false;
};

}  // namespace hilbert_ring::server
