// Many small attention jobs in few calls: jobs that are alike but for their tokens are computed
// together, as packed sequences, so that the way to the service and back is paid once for them.
//
//   std::vector<SmallJob> jobs(100);                       // each with its spec, rows and outputs
//   for (const absl::StatusOr<v1::Report>& report : AttendMany("localhost:8001", jobs)) ...
//
// Each job ends for itself: one that is wrong fails alone. Calls are those of Attend, and are made
// again as its are (client/cpp/retry.h). Four of them run side by side, or as many as the service
// has room for.
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

// Rows of Q, K and V together, and outputs, take less than 4 MiB each.
struct SmallJob {
  AttendInputs inputs;
  AttendOutputs outputs;
  std::string job_id;  // empty: none; with one the job is computed by itself
};

// For each job its report, or its error: as of Attend (client/cpp/attend.h). An error of the
// service as a whole (UNAVAILABLE, UNAUTHENTICATED, PERMISSION_DENIED, or that the caller
// cancelled) is that of all jobs that had not ended. A report's figures but its tokens are those of
// all jobs that were computed together. Of the options it passes over job_id and want_trace;
// chunk_bytes bound the rows, and the results, of jobs that are computed together, too. Progress is
// that of all jobs together.
std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::string& server,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options = {});

// Over a channel of the caller's.
std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::shared_ptr<grpc::Channel>& channel,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options = {});

}  // namespace hilbert_ring::client
