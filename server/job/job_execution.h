// An execution of a job, from the ring to the check of rows, on the workers of a grant. A failed
// execution leaves to the next: which rows have come, the rows that this process holds, and which
// outputs the client has.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "server/job/failure_policy.h"
#include "server/job/job_record.h"
#include "server/job/job_run.h"
#include "server/rows/row_router.h"

namespace hilbert_ring::server {

class JobExecution {
 public:
  // The parts outlive it; it sets ring and send_mode.
  explicit JobExecution(const RunParts& parts) : parts_(parts), job_(parts.job) {}

  absl::StatusOr<v1::Report> Run();  // with seconds, ring, workers and checked rows

  const Failure& failure() const { return failure_; }

 private:
  const Members& members() const { return parts_.grant.members; }

  Failure NoRing(const absl::Status& why, Clock::duration took) const;

  absl::Status RunWith(JobRun& run);
  absl::Status Start(JobRun& run);
  absl::Status Receive(JobRun& run);
  absl::Status Compute(JobRun& run);
  absl::Status Send(JobRun& run);
  absl::Status SendResults();
  absl::Status Check(JobRun& run);

  Clock::time_point Now() const { return parts_.time().Now(); }
  void Enter(JobPhase phase);
  JobClient::SendMode SendMode() const;
  bool RowsComeFirst();
  bool FitsOneAnswer() const;
  absl::Status Admit(const JobStop& stop);
  absl::Status FeedRows(JobRun& run);
  absl::Status TakeRows(const ClientMessage& message, JobRun& run);
  absl::Status PlaceRows(JobRun& run);

  RunParts parts_;
  JobRecord& job_;
  JobStop stop_;                     // of this execution: the client's, or a worker's failure
  Deadline ready_due_;               // for the workers
  bool few_ = false;                 // of a first execution: rows may precede the workers' memory
  bool rows_first_ = false;          // the worker gets the rows with the request
  Clock::time_point received_;       // all rows
  std::optional<RowRouter> router_;  // once the order is known
  v1::Report report_;
  Failure failure_;
};

}  // namespace hilbert_ring::server
