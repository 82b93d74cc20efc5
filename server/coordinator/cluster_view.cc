#include "server/coordinator/cluster_view.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"

namespace hilbert_ring::server {

void HideJobsOfOthers(const std::vector<v1::Job>& own, v1::GetClusterResponse& cluster) {
  const auto is_own = [&own](const std::string& job_id) {
    return std::any_of(own.begin(), own.end(),
                       [&](const v1::Job& job) { return job.job_id() == job_id; });
  };
  for (v1::ClusterWorker& worker : *cluster.mutable_workers()) {
    if (!is_own(worker.job_id())) worker.clear_job_id();
    // "failed 2 jobs in a row: job ID: ..."
    if (absl::StrContains(worker.reason(), "job")) worker.set_reason("jobs failed there");
  }
  for (v1::Ring& ring : *cluster.mutable_rings()) {
    if (!is_own(ring.job_id())) ring.clear_job_id();
  }
}

}  // namespace hilbert_ring::server
