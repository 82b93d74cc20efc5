// A job at the coordinator, from Open to its report.
//
//   job_phase.h                which phase follows which
//   served_job.cc              the course, and its loop over executions
//   served_job_admission.cc    checks of Open, quotas, memory, numbers of workers
//   job_execution.cc           the steps of an execution
//   failure_policy.h           the decision after a failed execution
//   job_rows.h                 rows and outputs
//   served_job_report.cc       report, metrics, line of the log
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/plan/plan.h"
#include "server/job/failure_policy.h"
#include "server/job/job_client.h"
#include "server/job/job_execution.h"
#include "server/job/job_rows.h"
#include "server/job/job_services.h"
#include "server/job/job_work.h"

namespace hilbert_ring::server {

SpecLimits LimitsOf(const CoordinatorSettings& settings);

enum class JobMethod { kAttend, kEncode, kAttendStream };

class ServedJob {
 public:
  ServedJob(const JobServices& services, JobClient& client, Caller caller,
            std::string traceparent = "", JobMethod method = JobMethod::kAttend);

  // Makes the job an epoch of a stream, whose course shows it and outlives it. Before Run.
  void ShowIn(JobCourse& stream) { course_.ShowIn(stream); }

  absl::Status Try();  // in place of Run: the checks before the queue

  // Runs the job. Everything that it held is free on return.
  absl::StatusOr<v1::Report> Run();

  int64_t client_bytes() const { return work_ == nullptr ? 0 : work_->client_bytes(); }

 private:
  Clock::time_point Now() const { return services_.observers.time.Now(); }
  absl::Status Open();
  absl::StatusOr<std::unique_ptr<JobWork>> MakeWork() const;
  absl::Status CheckRowSizes() const;
  absl::Status RunJob();
  absl::Status ReserveQuota();
  absl::Status ReserveOrder();
  absl::Status Prepare();
  absl::StatusOr<std::vector<JobSize>> Sizes();
  absl::StatusOr<std::vector<JobSize>> SizesWithout(const Members& without);
  Planner MakePlanner() const;
  bool CanRunOn(const Member& member) const;
  const JobSpec& spec() const { return work_->spec(); }
  int64_t tokens() const { return work_ == nullptr ? 0 : spec().tokens; }
  Members LeftOut() const;
  bool Judge(const Failure& failure);
  void NoteSuccess();
  void NoteUndecided();
  std::string Why(const absl::Status& status) const;
  absl::Status AwaitGrant(Scheduler::Place& place, Deadline deadline);
  absl::StatusOr<v1::Report> RunOnWorkers(std::vector<JobSize> sizes);
  absl::StatusOr<v1::Report> Execute(bool& retry);
  absl::Status AwaitOthers(Scheduler::Place& place);
  absl::Status AwaitWorkers(Scheduler::Place& place);
  void CompleteReport();
  void NoteEnd(const absl::Status& status);

  const JobServices services_;
  JobClient& client_;
  const Caller caller_;
  const std::string traceparent_;
  const JobMethod method_;

  v1::Open open_;                  // without the spec, once there is work_
  std::unique_ptr<JobWork> work_;  // once validated
  std::unique_ptr<JobRows> rows_;
  JobCourse course_;
  std::optional<Quotas::Share> quota_;
  Members asked_;      // live when the job was sized; empty: sizes are due again
  int position_ = -1;  // in the queue; the client has it
  Grant grant_;
  size_t live_before_ = 0;         // workers when the execution began
  Members hung_;                   // excluded to the end
  Members failed_;                 // excluded while others can hold the job
  std::vector<Failure> failures_;  // of its executions
  // Workers that back off if others end the job well, with their errors.
  std::vector<std::pair<std::shared_ptr<const Member>, absl::Status>> undecided_;
  std::optional<Plan> plan_;      // over the grant's members
  std::optional<JobRecord> job_;  // after admission
  JobSeconds seconds_;
  v1::Report report_;
};

}  // namespace hilbert_ring::server
