// The page at / of the HTTP port: workers, rings, present and last jobs. It loads nothing else.
#pragma once

#include <string>
#include <vector>

#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_table.h"

namespace hilbert_ring::server {

struct StatusPage {
  v1::GetClusterResponse cluster;
  std::vector<v1::Job> jobs;    // that the caller may see
  std::vector<EndedJob> ended;  // newest first
};

// Returns HTML, with all values escaped.
std::string RenderStatusPage(const StatusPage& page);

}  // namespace hilbert_ring::server
