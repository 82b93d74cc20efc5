// The workers' side of one execution: a Run stream to each worker.
//
//   run.Make();                        // the shards
//   run.Open();                        // then AwaitReady: the workers hold their memory
//   run.SendOrder(router);             // then SendHeld: rows of an earlier execution
//   run.Send(chunk, payload, router);  // blocks while a worker is behind
//   run.FinishRows();                  // compute starts; then AwaitComputed and AwaitEnd
//   HeldRows held = run.End();         // for another execution
//
// Rows and outputs of a worker on this host lie in shared memory; its stream only reports progress.
// Other workers get messages, of which a copy is held while there is memory for it.
//
// A WorkerStream has one worker's replies. This class waits for all of them, finds stalls
// (stall_watch.h), keeps the first failure and notes the outputs that left. A failure requests the
// execution's stop, and any stop cancels all streams. While the client does not take a worker's
// outputs its stream is not read; then a heartbeat reports its failure (open_runs.h).
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
#include "server/job/job_record.h"
#include "server/job/job_trace.h"
#include "server/job/stall_watch.h"
#include "server/job/worker_stream.h"
#include "server/process/job_stop.h"
#include "server/rows/held_rows.h"
#include "server/rows/job_input.h"
#include "server/rows/row_messages.h"
#include "server/rows/row_router.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class JobRun {
 public:
  JobRun(const RunParts& parts, JobStop& stop);

  ~JobRun();

  void Make();  // the job's thread calls Make and all below; a stop may follow
  void Open();

  // In place of Open after order and rows, on a single worker with an offered shard. The waits
  // below then read the worker's messages themselves.
  void OpenWithRows();
  bool MayOpenWithRows() const;

  // Waits for the first message after OpenWithRows; true if it is the whole answer. By the system's
  // time: the wait only saves a message.
  bool AnswersWithin(std::chrono::milliseconds limit);

  absl::Status AwaitReady(Deadline deadline);  // errors here and below: the stop's reason

  // Sends order and rows of a job whose rows came first to workers that could not map the shard.
  absl::Status SendAgain(const RowRouter& router, const JobInput& input);

  absl::Status SendOrder(const RowRouter& router);

  // After SendOrder. Releases shards that are neither shared nor copies.
  absl::Status SendHeld(const RowRouter& router, const JobInput& input);

  absl::Status Send(const v1::Chunk& chunk, const wire::Payload& payload, const RowRouter& router);
  absl::Status FinishRows();

  absl::Status AwaitRead();

  // Adds the time in which a worker's reader waits for the client to the deadline: until then the
  // worker's report may be unread.
  absl::Status AwaitComputed(Deadline deadline);

  // Waits until all outputs have gone to the client and all figures have come, at the client's
  // pace. A worker that passes nothing on though the client would take it stalls, whatever it
  // reports. INTERNAL: a worker has omitted outputs.
  absl::Status AwaitEnd();

  HeldRows End();  // cancels the streams, waits for them, and returns the rows that are here

  Failure failure() const;

  // After AwaitEnd, by rank: shards with the client's rows; empty unless all are here.
  std::vector<HostShard> Shards() const;

  std::vector<v1::WorkerReport> Reports() const;  // with spans of a trace

  // The longest time from last row to last result, by workers' clocks: reports may come late.
  double compute_seconds() const;

  // Streams call the following, from any thread:

  void Changed();  // a worker is ready, has computed or has ended
  void Progressed(int rank, const v1::RunProgress& progress);
  // Whether the reader waits for the client. The worker moved.
  void Forwarding(int rank, bool forwarding);
  // False if the client has not made room within `patience`.
  absl::StatusOr<bool> Output(int rank, const v1::OutputChunk& chunk, std::string_view payload,
                              const std::shared_ptr<const void>& owner, int64_t first_slot,
                              Clock::duration patience);
  // Both functions request the stop before they return.
  void Fail(FailureKind kind, int rank, const absl::Status& status);
  // An error that the worker reported, or that ended its stream; OK: without figures.
  void Failed(int rank, const grpc::Status& status);

 private:
  struct Awaited {  // of every worker
    bool WorkerReplies::*done;
    const char* late;        // of a worker that has not, by the deadline
    bool computing = false;  // looks for stalls; a late worker means that the job takes too long
  };
  struct Found {  // a late or stalled worker
    FailureKind kind;
    int rank;
    absl::Status status;
  };

  void NoteReport(int rank, const absl::Status& error);
  void FailedBeside(const std::string& worker, const v1::RunFailed& failed);
  void LookAtWrites();
  absl::Status CheckAllOut();
  absl::Status CheckWritten(int64_t bytes);
  absl::Status SendHeldRows(bool (WorkerStream::*chosen)() const, const RowRouter& router,
                            const JobInput& input);
  absl::Status WriteRows(std::map<int, RowMessages>& by_rank);
  absl::Status Await(const Awaited& awaited, Deadline deadline);
  bool Poll(const Awaited& awaited, Deadline until);
  bool AllDid(const Awaited& awaited) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Found> FindLate(const Awaited& awaited, Deadline deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Found> FindStalled(const Awaited& awaited) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelAndJoin();

  Clock::time_point Now() const { return parts_.time().Now(); }
  const Members& members() const { return parts_.grant.members; }
  const std::string& address(int rank) const { return parts_.member(rank).address; }

  const RunParts parts_;
  JobStop& stop_;
  const Clock::time_point opened_;
  std::optional<SendSpans> sent_;  // for a trace
  // Locked before a stream's. Guards the job's delivered slots too, while there are streams.
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  StallWatch watch_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point told_ ABSL_GUARDED_BY(mutex_);  // the last progress
  Failure failure_ ABSL_GUARDED_BY(mutex_);         // the first
  std::vector<PeerReport> reports_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<WorkerStream>> streams_;  // by rank
  bool polls_ = false;  // the job's thread reads the worker's messages, no reader does
  std::unique_ptr<OpenRuns::Place> place_;  // last: its callbacks use all of the above
};

}  // namespace hilbert_ring::server
