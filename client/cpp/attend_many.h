// Many small attention jobs in one call: the way of a call to the service and back is paid once,
// and jobs that are alike but for their tokens are computed together.
//
//   std::vector<SmallJob> jobs(100);                       // each with its spec, rows and outputs
//   for (const absl::StatusOr<v1::Report>& report : AttendMany("localhost:8001", jobs)) ...
//
// Each job ends for itself: one that is wrong fails alone. A call that is lost is made again, as a
// job's is (client/cpp/retry.h), with the jobs that have not ended. So are jobs for which there is
// no worker at the moment.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "client/cpp/attend_inputs.h"
#include "client/cpp/job_options.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Rows of Q, K, V and coordinates together, and outputs, take less than 4 MiB each.
struct SmallJob {
  AttendInputs inputs;
  AttendOutputs outputs;
  std::string job_id;  // empty: none; with one the job is computed by itself
};

// For each job its report, or its error: as of Attend (client/cpp/attend.h); of jobs that had not
// ended, that of the call. A report's figures but its tokens are those of all jobs that were
// computed together. Of the options it passes over job_id, can_resend and want_trace; chunk_bytes
// are those of a message of jobs.
std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::string& server,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options = {});

// Over a channel of the caller's.
std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::shared_ptr<grpc::Channel>& channel,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options = {});

}  // namespace hilbert_ring::client
