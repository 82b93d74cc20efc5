// Runs a job with retries: one conversation an attempt (client/cpp/retry.h).
//
//   absl::StatusOr<v1::Report> report = CallJob("localhost:8001", request, options);
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

// Makes the conversation of one attempt. The arguments outlive the conversation.
using NewConversation =
    std::function<std::unique_ptr<Conversation>(const AttemptName& name, ProgressTeller& progress)>;

// begin: the progress at the start of each attempt, without the attempt's name. INVALID_ARGUMENT:
// an option is out of its range.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const NewConversation& conversation,
                                   const JobProgress& begin, const JobOptions& options);

// Runs the job as Attend does. INVALID_ARGUMENT also: an option is out of its range.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options);
absl::StatusOr<v1::Report> CallJob(const std::string& server, const JobRequest& request,
                                   const JobOptions& options);

}  // namespace hilbert_ring::client
