// Ids of jobs, which callers choose.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// INVALID_ARGUMENT unless the id is short and printable. An empty id is valid.
absl::Status CheckJobId(const std::string& job_id);

}  // namespace hilbert_ring::server
