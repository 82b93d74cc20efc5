// The workers' side of one execution of a job: a Run stream to each, rows in, outputs and figures
// out.
//
//   JobRun run(options, stop);
//   run.Open();                     // every worker is asked to
//   run.AwaitReady(deadline);       // and holds its memory
//   run.SendOrder(router);          // for jobs with an ordering
//   run.SendHeld(router, input);    // rows that an execution before this one left here
//   run.Send(chunk, payload, router);  // blocks while a worker is behind
//   run.FinishRows();               // compute starts
//   run.AwaitComputed(deadline);    // outputs go to options.output as they come
//   run.AwaitEnd();
//   HeldRows held = run.End();      // for another execution
//
// A worker of this host has its shard in memory that is shared with this process: its rows are
// written there and its outputs read there, and its stream only says how far. Others are sent rows,
// of which a copy is held here while there is memory for copies.
//
// A stream has what one worker says (worker_stream.h); this class has what they say together: that
// all have come so far, that none moves (stall_watch.h), who failed first, and which outputs have
// gone. When a worker fails, is lost or stalls, the execution's stop is requested with the reason;
// when the stop is requested, by whomever, all streams are cancelled. A worker that sends its
// outputs and fails says so by a heartbeat too (open_runs.h), for nothing is read from its stream
// while the client does not take them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/job/failure_policy.h"
#include "server/job/job_run_options.h"
#include "server/job/progress_news.h"
#include "server/job/stall_watch.h"
#include "server/job/worker_stream.h"
#include "server/process/job_stop.h"
#include "server/rows/held_rows.h"
#include "server/rows/job_input.h"
#include "server/rows/row_messages.h"
#include "server/rows/row_router.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class JobRun : private WorkerStream::Listener {
 public:
  // The stop must outlive the run.
  JobRun(JobRunOptions options, JobStop& stop);

  // Cancels what is still under way and waits for it.
  ~JobRun() override;

  // Opens the streams. Each of these is called by one thread.
  void Open();

  // In place of Open, for a job on one worker whose shard is offered, and whose rows are known to
  // come before the worker needs any: makes the shard, then, when order and rows have been sent,
  // opens the stream with them. What the worker says the waits below hear themselves.
  void Make();
  void OpenWithRows();

  // After Make: the stream may be opened so.
  bool MayOpenWithRows() const;

  // After OpenWithRows: hears the worker until it has said something, for so long at most, by the
  // system's time: it is a wait that only saves a message. Whether that was its whole answer.
  bool AnswersWithin(std::chrono::milliseconds limit);

  // Waits until all workers are ready. Errors here and below: the stop's reason.
  absl::Status AwaitReady(Deadline deadline);

  // Where order and rows were sent before the workers were ready: sends them once more to those
  // that do not share memory after all.
  absl::Status SendAgain(const RowRouter& router, const JobInput& input);

  // router: outlives the run.
  absl::Status SendOrder(const RowRouter& router);

  // After SendOrder. Also gives up shards that are neither shared nor held as copies.
  absl::Status SendHeld(const RowRouter& router, const JobInput& input);

  absl::Status Send(const v1::Chunk& chunk, const wire::Payload& payload, const RowRouter& router);
  absl::Status FinishRows();

  // After that: until workers that read their rows themselves have them.
  absl::Status AwaitRead();

  // Until every worker has computed its part. Time in which a worker's reader waits for the client
  // is added to the deadline, for it may keep the worker's word from it.
  absl::Status AwaitComputed(Deadline deadline);

  // Until every worker's outputs have gone to `output` and it has said its figures. Takes as long
  // as the client takes to read; one that does not read is an error of `output`. A worker that
  // hands nothing over, though the client would take it, stalls whatever it says. INTERNAL: a
  // worker has left outputs out.
  absl::Status AwaitEnd();

  // Cancels what is still under way, waits for it, and hands over the rows that are here.
  HeldRows End();

  // After an error: what ended the run.
  Failure failure() const;

  // After AwaitEnd, by rank: shards with the rows that the client sent, or nothing at all where one
  // of them is not here.
  std::vector<HostShard> Shards() const;

  // After AwaitEnd, by rank.
  std::vector<v1::WorkerReport> Reports() const;

  // From the last row to the last result, by the clock of the worker that took longest: when we
  // hear of it depends on how fast the client reads.
  double compute_seconds() const;

 private:
  struct Awaited {  // of every worker
    bool WorkerReplies::*done;
    const char* late;  // what one did that has not done it by the deadline
    // Then they compute: what is late is the job, and one that stalls is lost.
    bool computing = false;
  };
  struct Found {  // while they are awaited
    FailureKind kind;
    int rank;
    absl::Status status;
  };

  // WorkerStream::Listener:
  void Changed() override;
  void Progressed(int rank, const v1::RunProgress& progress) override;
  void Moved(int rank) override;
  void Forwarding(int rank, bool forwarding) override;
  absl::StatusOr<bool> Output(int rank, const v1::OutputChunk& chunk, std::string_view payload,
                              const std::shared_ptr<const void>& owner, int64_t first_slot,
                              Clock::duration patience) override;
  void Misbehaved(int rank, const absl::Status& how) override;
  void Failed(int rank, const grpc::Status& status) override;

  ProgressNews::Does WhatDoes(int rank) const;
  void Fail(FailureKind kind, int rank, const absl::Status& status);
  void NoteReport(int rank, const absl::Status& error);
  void FailedBeside(const std::string& worker, const v1::RunFailed& failed);
  void LookAtWrites();
  absl::Status CheckAllOut();
  absl::Status CheckWritten(int64_t bytes);
  absl::Status SendHeldRows(const std::vector<int>& ranks, const RowRouter& router,
                            const JobInput& input);
  absl::Status WriteRows(std::map<int, RowMessages>& by_rank);
  absl::Status Await(const Awaited& awaited, Deadline deadline);
  bool Poll(const Awaited& awaited, Deadline until);
  bool AllDid(const Awaited& awaited) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Found> FindLate(const Awaited& awaited, Deadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Found> FindStalled(const Awaited& awaited) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelAndJoin();

  const std::string& address(int rank) const { return options_.members[rank]->address; }

  const JobRunOptions options_;
  JobStop& stop_;
  // Comes before a stream's lock. Also guards *options_.delivered while there are streams.
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  StallWatch watch_ ABSL_GUARDED_BY(mutex_);
  std::vector<ProgressNews> news_ ABSL_GUARDED_BY(mutex_);  // by rank
  Clock::time_point told_ ABSL_GUARDED_BY(mutex_);          // last progress
  Failure failure_ ABSL_GUARDED_BY(mutex_);                 // the first
  std::vector<PeerReport> reports_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<WorkerStream>> streams_;  // by rank; all there once one is open
  bool polls_ = false;                      // the job's thread, what the worker says: no other does
  std::unique_ptr<OpenRuns::Place> place_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
