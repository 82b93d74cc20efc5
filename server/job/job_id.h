// The ids of jobs that callers choose.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// INVALID_ARGUMENT, naming the field, the id's start and the limit. An empty id is right.
absl::Status CheckJobId(const std::string& job_id);

}  // namespace hilbert_ring::server
