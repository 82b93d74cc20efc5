// Calls a job until it ends: attempt after attempt, as client/cpp/retry.h says.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/attempt.h"
#include "client/cpp/connector.h"
#include "client/cpp/job_options.h"
#include "client/cpp/progress_teller.h"
#include "client/cpp/retry.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// One attempt of a job, until its call is over. deadline: of GrpcDeadline.
using RunAttempt = std::function<std::variant<v1::Report, AttemptFailure>(
    const std::shared_ptr<grpc::Channel>& channel, absl::Time deadline, const AttemptName& name,
    ProgressTeller& progress)>;

// begin: of an attempt's progress, but for its name.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const RunAttempt& run,
                                   const JobProgress& begin, const JobOptions& options);

// As Attend says (client/cpp/attend.h). The connector keeps the last attempt's channel.
// INVALID_ARGUMENT: options that are out of their range.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options);

}  // namespace hilbert_ring::client
