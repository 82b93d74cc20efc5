// The cluster as a caller sees it who may see its own jobs alone.
#pragma once

#include <vector>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::server {

// Takes out which jobs of others run where, and what they said when they failed. own: the caller's.
void HideJobsOfOthers(const std::vector<v1::Job>& own, v1::GetClusterResponse& cluster);

}  // namespace hilbert_ring::server
