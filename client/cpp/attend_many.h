// AttendMany computes many small attention jobs in few calls. A pack of jobs that differ only in
// their tokens and keys is one call, as packed sequences. It costs one round trip to the service.
//
//   std::vector<SmallJob> jobs(100);                       // each with its spec, rows and outputs
//   for (const absl::StatusOr<v1::Report>& report : AttendMany("localhost:8001", jobs)) ...
//
// Each job ends by itself: an invalid job fails alone. The calls are those of Attend, with its
// retries (client/cpp/retry.h). At most four calls run side by side, fewer if the service has less
// room.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "client/cpp/job_options.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Rows of Q, K and V together, and outputs, take less than 4 MiB each.
struct SmallJob {
  AttendInputs inputs;
  AttendOutputs outputs;
  std::string job_id;  // with an id the job is computed by itself
};

// Returns each job's report or error, as Attend does (client/cpp/attend.h). An error of the whole
// service (UNAVAILABLE, UNAUTHENTICATED, PERMISSION_DENIED, or the caller's cancel) ends all
// unfinished jobs. A report has the job's own tokens; its other figures are those of the pack. The
// options job_id and want_trace have no effect. chunk_bytes bounds a pack's rows, and its results.
// Progress is that of all jobs together.
std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::string& server,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options = {});

// Uses the caller's channel.
std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::shared_ptr<grpc::Channel>& channel,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options = {});

}  // namespace hilbert_ring::client
