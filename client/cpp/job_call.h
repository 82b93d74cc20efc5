// Calls a job until it ends: attempt after attempt, as client/cpp/retry.h says.
#pragma once

#include "absl/status/statusor.h"
#include "client/cpp/attempt.h"
#include "client/cpp/connector.h"
#include "client/cpp/job_options.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// As Attend says (client/cpp/attend.h). INVALID_ARGUMENT: options that are out of their range.
absl::StatusOr<v1::Report> CallJob(Connector connector, const JobRequest& request,
                                   const JobOptions& options);

}  // namespace hilbert_ring::client
