// Runs a job with retries: one conversation an attempt (client/cpp/retry.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/connector.h"
#include "client/cpp/conversation.h"
#include "client/cpp/job_options.h"
#include "client/cpp/job_request.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Makes the conversation of one attempt. Its arguments outlive it.
using NewConversation =
    std::function<std::unique_ptr<Conversation>(const AttemptName& name, ProgressTeller& progress)>;

// begin: initial progress of an attempt; its name is added.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const NewConversation& conversation,
                                   const JobProgress& begin, const JobOptions& options);

// Runs the job as Attend does. INVALID_ARGUMENT also: an option is out of its range.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options);
absl::StatusOr<v1::Report> CallJob(const std::string& server, const JobRequest& request,
                                   const JobOptions& options);

}  // namespace hilbert_ring::client
