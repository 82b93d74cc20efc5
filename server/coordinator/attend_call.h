// The story of one job at the coordinator.
//
//   Open -> checked -> planned over the live workers -> its turn -> ring -> Run streams -> Admitted
//   -> chunks, each checked, routed and sent on -> compute -> outputs and progress -> Report
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/order/order_cache.h"
#include "engine/plan/plan.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/attend_stream.h"
#include "server/coordinator/job_run.h"
#include "server/coordinator/job_table.h"
#include "server/coordinator/membership.h"
#include "server/coordinator/rings.h"
#include "server/process/metrics.h"
#include "server/process/settings.h"

namespace hilbert_ring::server {

// What all jobs share.
struct JobServices {
  const CoordinatorSettings& settings;
  Membership& membership;
  Admission& admission;
  JobTable& jobs;
  Rings& rings;
  OrderCache& orders;
  SharedMemoryPool& shards;
  Metrics& metrics;
};

SpecLimits LimitsOf(const CoordinatorSettings& settings);

class AttendCall {
 public:
  // caller: whose job ids these are.
  AttendCall(const JobServices& services, AttendStream& stream, std::string caller);
  ~AttendCall();

  // The whole job: its report, to be sent with the status. All that it held is free when this
  // returns.
  absl::StatusOr<v1::Report> Run();

 private:
  absl::Status ReadOpen();
  absl::Status Validate() const;
  absl::Status Execute();
  absl::Status PlanOverLiveWorkers();
  absl::Status ReceiveRows(JobRun& run);
  absl::Status ReceiveChunk(const v1::Chunk& chunk, const wire::Payload& payload, JobRun& run);
  absl::Status MakeOrder(std::span<const int64_t> coords, JobRun& run);
  absl::Status Admit();
  absl::Status SendOutput(const v1::OutputChunk& chunk, std::string_view payload,
                          const std::shared_ptr<const void>& owner);
  void TellSent(int64_t rows);
  absl::Status SendProgress(double fraction);
  v1::Report MakeReport(const JobRun& run, int64_t generation);
  Deadline IdleDeadline() const { return Clock::now() + services_.settings.idle_timeout; }
  void Log(const absl::Status& status) const;

  struct Receiving;  // what is known of the rows while they come

  const JobServices services_;
  AttendStream& stream_;
  const std::string caller_;

  v1::Open open_;
  JobSpec spec_;
  Members members_;  // by rank
  std::optional<Plan> plan_;
  std::unique_ptr<Receiving> receiving_;
  std::optional<JobProgress> progress_;  // once the spec is known
  std::atomic<int64_t> rows_sent_ = 0;   // of OUT
  JobSeconds seconds_;
  v1::Report report_;
  const Clock::time_point opened_ = Clock::now();
};

}  // namespace hilbert_ring::server
