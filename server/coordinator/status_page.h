// The page at / of the HTTP port: workers, rings, jobs that wait or run, and the last ones, for a
// person who looks. Made anew for each request; it needs nothing from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_table.h"

namespace hilbert_ring::server {

struct StatusPage {
  v1::GetClusterResponse cluster;
  std::vector<v1::Job> jobs;    // that whoever looks may see
  std::vector<EndedJob> ended;  // the last ones, newest first
};

// HTML. Whatever came from elsewhere is escaped.
std::string RenderStatusPage(const StatusPage& page);

}  // namespace hilbert_ring::server
