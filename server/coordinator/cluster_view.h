// The cluster for a caller who may see only its own jobs.
#pragma once

#include <vector>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::server {

// Removes ids and errors of others' jobs. own: the caller's jobs.
void HideJobsOfOthers(const std::vector<v1::Job>& own, v1::GetClusterResponse& cluster);

}  // namespace hilbert_ring::server
