// One execution of a job, on workers that were given to it:
//
//   ring -> start: Run streams, memory, Admitted -> receive: rows that are here already, chunks as
//   they come -> compute -> send: the last outputs -> check of rows
//
// An execution that fails leaves what the next one needs: which rows have come, those of them that
// this process holds, and what the client has of the outputs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "server/job/failure_policy.h"
#include "server/job/job_client.h"
#include "server/job/job_course.h"
#include "server/job/job_rows.h"
#include "server/job/job_run.h"
#include "server/job/job_services.h"
#include "server/job/job_trace.h"
#include "server/job/job_work.h"
#include "server/metrics/metrics.h"
#include "server/rows/held_rows.h"
#include "server/rows/job_input.h"
#include "server/rows/row_check.h"
#include "server/rows/row_router.h"

namespace hilbert_ring::server {

// What a job is, and what lasts from one execution to the next.
struct JobRecord {
  // All that is pointed to must outlive it.
  JobRecord(v1::Open opened, JobWork& job_work, RowSource& rows, OutputSink& outputs,
            OrderCache& orders, JobCourse& how_far)
      : open(std::move(opened)),
        work(job_work),
        source(rows),
        sink(outputs),
        spec(work.spec()),
        input(work.shape(), orders),
        delivered(spec.tokens),
        course(how_far),
        check(work.MakeCheck()) {}

  const v1::Open open;  // without what it is to compute
  int64_t number = 0;   // that no other job has, whatever clients call them
  JobWork& work;
  RowSource& source;
  OutputSink& sink;
  const JobSpec& spec;
  std::string traceparent;  // the caller's; empty: none
  JobInput input;
  HeldRows held;
  Delivered delivered;
  JobCourse& course;
  const std::shared_ptr<RowCheck> check;           // null: none is asked for
  std::atomic<int64_t> rows_sent = 0;              // of outputs
  int64_t bytes_received = 0;                      // payload, of the client's
  std::atomic<int64_t> bytes_sent = 0;             // payload, to the client
  JobMemory::Reservation* order_memory = nullptr;  // of coordinates, and the order made of them
  bool begun = false;                              // it was executed before
  bool admitted = false;                           // the client was told
};

// Of an execution that ended well.
struct ExecutionFigures {
  int64_t rows_checked = 0;     // and found right
  int64_t rows_not_judged = 0;  // of those that were to be checked
  std::string check_note;       // of the report; empty: none
  double ring_seconds = 0;      // until there was one; hardly any where it was there before
  double receive_seconds = 0, compute_seconds = 0, send_seconds = 0;
  int64_t ring_generation = 0;
  std::vector<v1::WorkerReport> workers;  // by rank
};

class JobExecution {
 public:
  // All must outlive it; the grant's members are the plan's ranks.
  JobExecution(const JobServices& services, JobClient& client, JobRecord& job, const Plan& plan,
               const Grant& grant);

  // Errors: of the client or of a worker, as failure() tells.
  absl::StatusOr<ExecutionFigures> Run();

  // After an error.
  const Failure& failure() const { return failure_; }

 private:
  absl::StatusOr<ExecutionFigures> Execute();

  // The failure of an execution whose ring could not be formed.
  Failure NoRing(const absl::Status& why, Clock::duration took) const;

  // The steps of an execution once it has its ring; each enters its phase.
  absl::Status RunWith(JobRun& run);
  absl::Status Start(JobRun& run);
  absl::Status Receive(JobRun& run);
  absl::Status Compute(JobRun& run);
  absl::Status Send(JobRun& run);
  absl::Status SendResults();
  absl::Status Check(JobRun& run);

  Clock::time_point Now() const { return services_.observers.time.Now(); }
  void Enter(JobPhase phase);
  bool RowsComeFirst();
  bool FitsOneAnswer() const;
  absl::Status Admit(const JobStop& stop);
  absl::Status Resume();
  absl::Status FeedRows(JobRun& run);
  absl::Status TakeRows(const ClientMessage& message, JobRun& run);
  absl::Status PlaceRows(JobRun& run);
  absl::StatusOr<bool> SendOutput(int rank, const v1::OutputChunk& chunk, std::string_view payload,
                                  const std::shared_ptr<const void>& owner,
                                  Clock::duration patience);
  void NoteSent(int64_t rows);
  void SendProgress(double fraction, int64_t layer);

  const JobServices& services_;
  JobClient& client_;
  JobRecord& job_;
  const Plan& plan_;
  const Members& members_;
  const int lane_;
  JobStop stop_;        // of this execution: the client's, or a worker's failure
  Deadline ready_due_;  // of the workers
  bool few_ = false;    // so few rows that they come while the workers make ready
  JobClient::SendMode send_mode_ = JobClient::SendMode::kNow;  // outputs
  bool rows_first_ = false;     // they are in the shard before the worker hears of the job
  bool one_answer_ = false;     // then: the client need not hear that it is admitted
  Clock::time_point received_;  // all rows
  Clock::time_point run_opened_;
  std::optional<SendSpans> sent_;    // of jobs that want a trace
  std::optional<RowRouter> router_;  // once the order is known
  ExecutionFigures figures_;
  Failure failure_;
};

}  // namespace hilbert_ring::server
