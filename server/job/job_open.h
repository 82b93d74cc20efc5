// The first message of a job or a stream.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_client.h"

namespace hilbert_ring::server {

absl::Status BadOpen(const std::string& message);  // INVALID_OPEN

// INVALID_OPEN unless the id is short and printable. An empty id is valid.
absl::Status CheckJobId(const std::string& job_id);

// Checks id and attempt, and draws an id if the caller chose none. An invalid id becomes "?".
absl::Status ReadOpen(JobClient& client, v1::Open& open);

}  // namespace hilbert_ring::server
