// The story of one job at the coordinator, whichever method brought it.
//
//   ServedJob(services, client, caller, traceparent, JobMethod::kEncode).Run()
//
//   Open -> validated -> sized for the live workers -> given some -> an execution
//   (job_execution.h), and others where workers are lost -> Report
//
// | question | file |
// | --- | --- |
// | which phase follows which | job_phase.h |
// | the course from Open to Report, and its one loop | served_job.cc |
// | what Open must be | served_job_open.cc |
// | quotas, memory, numbers of workers | served_job_admission.cc |
// | the steps of an execution | job_execution.cc |
// | what follows when an execution fails | failure_policy.h |
// | where rows come from and outputs go | job_rows.h |
// | report, metrics, line of the log | served_job_report.cc |
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
  // caller: whose job ids these are.
  // traceparent: the caller's trace, or empty.
  ServedJob(const JobServices& services, JobClient& client, Caller caller,
            std::string traceparent = "", JobMethod method = JobMethod::kAttend);
  ~ServedJob();

  // The job is an epoch of a stream, whose course shows it. Before Run; it outlives the job.
  void ShowIn(JobCourse& stream) {
    course_.ShowIn(stream);
    epoch_ = true;
  }

  // In place of Run: what would refuse the job before it waits for its turn.
  absl::Status Try();

  // The whole job: its report, to be sent with the status. All that it held is free when this
  // returns.
  absl::StatusOr<v1::Report> Run();

  // Of all its tensors; 0 where its spec was refused.
  int64_t client_bytes() const { return work_ == nullptr ? 0 : work_->client_bytes(); }

 private:
  Clock::time_point Now() const { return services_.observers.time.Now(); }
  absl::Status ReadOpen();
  absl::StatusOr<std::unique_ptr<JobWork>> MakeWork() const;
  absl::Status OpenRows();
  absl::StatusOr<std::unique_ptr<JobWork>> ReadModel() const;
  absl::Status CheckRowSizes() const;
  absl::Status RunJob();
  absl::Status ReserveQuota();
  absl::Status ReserveOrder();
  absl::Status Prepare();
  absl::StatusOr<std::vector<JobSize>> Sizes();
  absl::StatusOr<std::vector<JobSize>> SizesWithout(const Members& without);
  Planner MakePlanner() const;
  bool CanRunOn(const Member& member) const;
  absl::Status NobodyCan() const;
  const JobSpec& spec() const { return work_->spec(); }
  int64_t tokens() const { return work_ == nullptr ? 0 : spec().tokens; }
  Members LeftOut() const;
  Verdict::Then Judge(const Failure& failure);
  void NoteSuccess();
  void NoteUndecided();
  std::string Why(const absl::Status& status) const;
  absl::Status AwaitGrant(Scheduler::Place& place, Deadline deadline);
  absl::StatusOr<ExecutionFigures> RunOnWorkers(std::vector<JobSize> sizes);
  absl::StatusOr<ExecutionFigures> Execute(Verdict::Then& then);
  absl::Status AwaitOthers(Scheduler::Place& place);
  absl::Status AwaitWorkers(Scheduler::Place& place);
  absl::Status NotEnough(const absl::Status& why) const;
  v1::Report MakeReport(ExecutionFigures figures);
  void NoteEnd(const absl::Status& status);

  const JobServices services_;
  JobClient& client_;
  const Caller caller_;
  const std::string traceparent_;
  const JobMethod method_;

  v1::Open open_;                      // without what it is to compute, once there is work
  std::unique_ptr<JobWork> work_;      // once it is validated
  std::shared_ptr<RowSource> source_;  // shared where one object is both
  std::shared_ptr<OutputSink> sink_;
  JobCourse course_;
  bool epoch_ = false;  // of a stream, which has a line of the log itself
  std::optional<Quotas::Share> quota_;
  std::optional<JobMemory::Reservation> order_memory_;   // of jobs with coordinates
  std::optional<JobMemory::Reservation> result_memory_;  // of results that are put together here
  Members asked_;      // that were there when the job was sized; empty: it is to be sized anew
  int position_ = -1;  // in the queue, as the client knows it
  Grant grant_;
  size_t live_before_ = 0;         // workers when the execution began
  Members hung_;                   // that this job leaves out from here on
  Members failed_;                 // likewise, as long as it can do without them
  std::vector<Failure> failures_;  // of its executions; each but the last was tried again
  // Workers that back off if others end the job well, and why.
  std::vector<std::pair<std::shared_ptr<const Member>, absl::Status>> undecided_;
  std::optional<Plan> plan_;      // over the grant's members
  std::optional<JobRecord> job_;  // once it starts
  JobSeconds seconds_;
  v1::Report report_;
  const Clock::time_point opened_;
};

}  // namespace hilbert_ring::server
