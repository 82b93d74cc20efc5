// An execution of a job, from the ring to the check of rows, on the workers of a grant. A failed
// execution leaves to the next: which rows have come, the rows that this process holds, and which
// outputs the client has.
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

struct JobRecord {
  // References outlive it.
  JobRecord(const v1::Open& opened, JobWork& job_work, JobRows& job_rows, OrderCache& orders,
            JobCourse& how_far)
      : open(opened),
        work(job_work),
        rows(job_rows),
        spec(work.spec()),
        input(work.shape(), orders),
        delivered(spec.tokens),
        course(how_far),
        check(work.MakeCheck()) {}

  const v1::Open& open;  // without the spec
  int64_t number = 0;    // unique, unlike the ids of clients
  JobWork& work;
  JobRows& rows;
  const JobSpec& spec;
  std::string traceparent;  // the caller's, or empty
  JobInput input;
  HeldRows held;
  Delivered delivered;
  JobCourse& course;
  const std::shared_ptr<RowCheck> check;           // null: no rows to check
  std::atomic<int64_t> rows_sent = 0;              // outputs
  int64_t bytes_received = 0;                      // payload
  std::atomic<int64_t> bytes_sent = 0;             // payload
  JobMemory::Reservation* order_memory = nullptr;  // of coordinates and their order
  bool begun = false;                              // an execution came before
  bool admitted = false;                           // the client got Admitted
};

struct ExecutionFigures {       // of a successful execution
  int64_t rows_checked = 0;     // right ones
  int64_t rows_not_judged = 0;  // chosen, but could not be judged
  std::string check_note;       // for the report
  double ring_seconds = 0;      // to lease the ring
  double receive_seconds = 0, compute_seconds = 0, send_seconds = 0;
  int64_t ring_generation = 0;
  std::vector<v1::WorkerReport> workers;  // by rank
};

class JobExecution {
 public:
  // References outlive it. The grant's members are the plan's ranks.
  JobExecution(const JobServices& services, JobClient& client, JobRecord& job, const Plan& plan,
               const Grant& grant);

  absl::StatusOr<ExecutionFigures> Run();

  const Failure& failure() const { return failure_; }

 private:
  absl::StatusOr<ExecutionFigures> Execute();

  Failure NoRing(const absl::Status& why, Clock::duration took) const;

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
  Deadline ready_due_;  // for the workers
  bool few_ = false;    // the rows may come before the workers are ready
  JobClient::SendMode send_mode_ = JobClient::SendMode::kNow;  // for outputs
  bool rows_first_ = false;     // the worker gets the rows with the request
  bool one_answer_ = false;     // then Admitted is not sent if the answer is fast
  Clock::time_point received_;  // all rows
  Clock::time_point run_opened_;
  std::optional<SendSpans> sent_;    // for a trace
  std::optional<RowRouter> router_;  // once the order is known
  ExecutionFigures figures_;
  Failure failure_;
};

}  // namespace hilbert_ring::server
