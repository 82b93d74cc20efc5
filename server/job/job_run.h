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
// One thread reads from each worker and hands its outputs on, so that a client that reads slowly
// slows the workers and nothing is kept here. Outputs of a shared shard that the client does not
// take at once are handed on by another thread, so that the first still hears what the worker says.
// A worker that sends its outputs and fails says so by a heartbeat too, for nothing is read from
// its stream while the client does not take them. When a worker fails, is lost or stalls, the
// execution's stop is requested with the reason; when the stop is requested, by whomever, all
// streams are cancelled.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "engine/plan/shard_layout.h"
#include "grpcpp/client_context.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/cluster/membership.h"
#include "server/cluster/open_runs.h"
#include "server/job/stall_watch.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "server/rows/held_rows.h"
#include "server/rows/job_input.h"
#include "server/rows/row_messages.h"
#include "server/rows/row_router.h"
#include "server/rows/shared_memory_pool.h"
#include "server/shard/arrived_rows.h"
#include "server/shard/output_rows.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

struct JobRunOptions {
  std::string job_id;
  const Plan* plan = nullptr;  // outlives the run
  Members members;             // by rank
  std::string ring_id;         // empty: the plan exchanges nothing
  int64_t generation = 0;
  bool want_lse = false;
  bool express = false;  // a short job, beside one that has the worker
  std::chrono::milliseconds compute_timeout{0};
  std::chrono::milliseconds stall_timeout{0};  // without progress of any worker
  bool share_memory = true;
  SharedMemoryPool* shards = nullptr;  // like those below outlives the run
  JobMemory* copies = nullptr;         // what copies of workers' rows may take
  HeldRows* held = nullptr;            // of the execution before this one
  Delivered* delivered = nullptr;      // slots that the client has; the run adds to it
  OpenRuns* runs = nullptr;            // where it is heard of while it is open
  // Called by several threads. False when the client has not made room for it within `patience`. An
  // error ends the job. The payload lies beside the chunk and lives as long as its owner.
  std::function<absl::StatusOr<bool>(
      int rank, const v1::OutputChunk& chunk, std::string_view payload,
      const std::shared_ptr<const void>& owner, Clock::duration patience)>
      output;
  std::function<void(double fraction)> progress;  // mean over the workers, seldom; does not block
  std::function<void()> absurd_progress;          // what a worker said of its progress cannot be
};

class JobRun {
 public:
  // The stop must outlive the run.
  JobRun(JobRunOptions options, JobStop& stop);

  // Cancels what is still under way and waits for it.
  ~JobRun();

  // Opens the streams. Each of these is called by one thread.
  void Open();

  // Waits until all workers are ready. Errors here and below: the stop's reason.
  absl::Status AwaitReady(Deadline deadline);

  // Where order and rows were sent before the workers were ready: sends them once more to those
  // that do not share memory after all.
  absl::Status SendAgain(const RowRouter& router, const JobInput& input);

  absl::Status SendOrder(const RowRouter& router);

  // After SendOrder. Also gives up shards that are neither shared nor held as copies.
  absl::Status SendHeld(const RowRouter& router, const JobInput& input);

  absl::Status Send(const v1::Chunk& chunk, const wire::Payload& payload, const RowRouter& router);
  absl::Status FinishRows();

  // Until every worker has computed its part. Time in which a worker's reader waits for the client
  // is added to the deadline, for it may keep the worker's word from it.
  absl::Status AwaitComputed(Deadline deadline);

  // Until every worker's outputs have gone to `output` and it has said its figures. Takes as long
  // as the client takes to read; one that does not read is an error of `output`.
  absl::Status AwaitEnd();

  // Cancels what is still under way, waits for it, and hands over the rows that are here.
  HeldRows End();

  // The worker that made no progress though it waited for nobody; null if none did so.
  std::shared_ptr<const Member> stalled() const;

  // The worker whose connection broke first, before any other failure, though it has not left; null
  // if none did so.
  std::shared_ptr<const Member> failed() const;

  // After AwaitEnd, by rank: shards with the rows that the client sent, or nothing at all where one
  // of them is not here.
  std::vector<HostShard> Shards() const;

  // After AwaitEnd, by rank.
  std::vector<v1::WorkerReport> Reports() const;

  // From the last row to the last result, by the clock of the worker that took longest: when we
  // hear of it depends on how fast the client reads.
  double compute_seconds() const;

 private:
  struct Stream {
    explicit Stream(const JobStop& stop) : cancel(stop.token(), [this] { context.TryCancel(); }) {}
    grpc::ClientContext context;
    std::stop_callback<std::function<void()>> cancel;
    std::unique_ptr<grpc::ClientReaderWriterInterface<v1::RunRequest, v1::RunResponse>> call;
    std::optional<std::stop_callback<std::function<void()>>> departed;
    bool offered = false;  // memory to share; not guarded
    // Guarded by mutex_:
    bool ready = false, shares = false, computed = false, ended = false;
    double fraction = 0;
    double compute_seconds = 0;
    std::optional<v1::WorkerReport> report;
    int64_t rows_final = 0;  // of the shared shard
    bool all_final = false;  // no more will be
    std::thread reader;      // not guarded, like all below
    std::thread passer;      // the reader's: hands outputs of the shared shard on, once it is there
    // Cut, but not yet taken by the client; of the thread that hands outputs on.
    bool cut = false;
    v1::OutputChunk chunk;
    std::string_view payload;
    // The shard, or a copy of its rows; empty and unused where neither is here. Set before the
    // stream is opened; rows and arrived are the sender's, outputs of who hands them on.
    HeldShard shard;
    std::optional<ArrivedRows> arrived;
    std::optional<OutputRows> outputs;
    int64_t told_arrived = 0;
    Clock::time_point told_at;  // anything; the sender's
  };

  void NoteDeparted(int rank, const Stream& stream);
  absl::Status MakeShard(int rank);
  bool Shares(int rank) const;
  bool TakesMessages(int rank) const;
  void DropUnneeded(int rank);
  absl::Status SendOrderTo(int rank, const RowRouter& router);
  absl::Status PassOn(const std::vector<int>& ranks, const RowRouter& router,
                      const JobInput& input);
  absl::Status WriteRows(std::map<int, RowMessages>& by_rank);
  absl::Status TellArrived();
  absl::Status TellElsewhere();
  void CancelAndJoin();
  v1::RunRequest OpenRequest(int rank) const;
  absl::Status Write(int rank, const v1::RunRequest& request);
  void ReadFrom(int rank);
  absl::Status Handle(int rank, v1::RunResponse& response);
  absl::Status HandleReady(int rank, const v1::RunReady& ready);
  absl::Status PassOn(int rank, v1::OutputChunk& chunk, int64_t first_slot);
  absl::Status PassOnShared(int rank, int64_t rows_final);
  absl::StatusOr<bool> PassOnFinal(int rank, int64_t rows_final, Clock::duration patience);
  void PassOnRest(int rank);
  void EndPasser(int rank);
  absl::StatusOr<bool> Deliver(int rank, const v1::OutputChunk& chunk, std::string_view payload,
                               const std::shared_ptr<const void>& owner, int64_t first_slot,
                               Clock::duration patience);
  void HandleFailed(int rank, const v1::RunFailed& failed);
  void HandleFailed(const std::string& worker, const v1::RunFailed& failed);
  void NotePassingOn(int rank, bool passing_on);
  void TellProgress(int rank, const v1::RunProgress& progress);
  void NoteComputed(int rank, double seconds);
  void NoteFailed(int rank, const grpc::Status& status);
  absl::Status Await(Deadline deadline, const char* what, bool Stream::*state, bool watch_progress);
  absl::Status Lost(int rank, const std::string& how) const;
  absl::Status FindStalled(bool Stream::*state);
  void AwaitCulprit(const grpc::Status& status);
  void NoteBroken(int rank, const grpc::Status& status);
  absl::Status Explain(int rank, const grpc::Status& status) const;

  const JobRunOptions options_;
  JobStop& stop_;
  bool settled_ = false;  // who shares memory: AwaitReady has ended well; its thread's
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  StallWatch watch_;                                // guarded by mutex_
  Clock::time_point told_;                          // guarded by mutex_; last progress
  Clock::time_point finished_;                      // guarded by mutex_; the rows
  std::shared_ptr<const Member> stalled_, failed_;  // guarded by mutex_
  std::vector<std::unique_ptr<Stream>> streams_;    // by rank; set by Start
  std::unique_ptr<OpenRuns::Place> place_;          // last: it uses all of the above
};

}  // namespace hilbert_ring::server
