// The ids of jobs, which callers choose or leave to the service.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// INVALID_ARGUMENT, naming the field, the id's start and the limit. An empty id is right.
absl::Status CheckJobId(const std::string& job_id);

std::string DrawJobId();

}  // namespace hilbert_ring::server
