// Calls a job until it ends: conversation after conversation, as client/cpp/retry.h says.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/connector.h"
#include "client/cpp/conversation.h"
#include "client/cpp/job_options.h"
#include "client/cpp/job_request.h"
#include "client/cpp/progress_teller.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// The conversation of one attempt. Its arguments outlive it.
using NewConversation =
    std::function<std::unique_ptr<Conversation>(const AttemptName& name, ProgressTeller& progress)>;

// begin: of an attempt's progress, but for its name.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const NewConversation& conversation,
                                   const JobProgress& begin, const JobOptions& options);

// As Attend says (client/cpp/attend.h). The connector keeps the last attempt's channel.
// INVALID_ARGUMENT: options that are out of their range.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options);
absl::StatusOr<v1::Report> CallJob(const std::string& server, const JobRequest& request,
                                   const JobOptions& options);

}  // namespace hilbert_ring::client
