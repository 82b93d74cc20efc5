#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/json_message.h"
#include "client/cli/table.h"
#include "client/cpp/service.h"
#include "wire/control_characters.h"
#include "wire/worker_state.h"

namespace hilbert_ring::cli {
namespace {

std::string OrIdle(const std::string& job_id) { return job_id.empty() ? "idle" : job_id; }

void PrintCluster(const std::string& server, const v1::GetClusterResponse& cluster) {
  std::printf("%s: version %s, %s; %d worker%s, %d job%s running, %d queued\n", server.c_str(),
              wire::EscapeControls(cluster.version()).c_str(),
              cluster.ready() ? "ready" : "not ready", cluster.workers_size(),
              cluster.workers_size() == 1 ? "" : "s", cluster.jobs_running(),
              cluster.jobs_running() == 1 ? "" : "s", cluster.jobs_queued());
  if (cluster.workers_size() > 0) {
    std::vector<std::vector<std::string>> rows = {{"worker", "device", "kernel", "used by jobs",
                                                   "limit", "resident", "heartbeat", "state",
                                                   "job"}};
    for (const v1::ClusterWorker& worker : cluster.workers()) {
      rows.push_back({worker.address(), worker.device(), worker.kernel(),
                      FormatBytes(worker.memory_used_bytes()),
                      FormatBytes(worker.memory_limit_bytes()),
                      FormatBytes(worker.memory_resident_bytes()),
                      absl::StrCat(FormatSeconds(worker.seconds_since_heartbeat()), " ago"),
                      std::string(wire::NameOf(worker.state())), OrIdle(worker.job_id())});
    }
    std::printf("\n%s", FormatTable(rows).c_str());
    for (const v1::ClusterWorker& worker : cluster.workers()) {
      if (worker.reason().empty()) continue;
      std::printf("%s: %s\n", wire::EscapeControls(worker.address()).c_str(),
                  wire::EscapeControls(worker.reason()).c_str());
    }
  }
  if (cluster.rings_size() > 0) {
    std::vector<std::vector<std::string>> rows = {{"ring", "generation", "job", "members"}};
    for (const v1::Ring& ring : cluster.rings()) {
      rows.push_back({ring.ring_id(), absl::StrCat(ring.generation()), OrIdle(ring.job_id()),
                      absl::StrJoin(ring.members(), " ")});
    }
    std::printf("\n%s", FormatTable(rows).c_str());
  }
}

}  // namespace

int RunStatus(const GlobalOptions& global) {
  return PrintAnswer(global, client::RequestCluster(client::Connect(global.server, global.access)),
                     [&](const auto& cluster) { PrintCluster(global.server, cluster); });
}

}  // namespace hilbert_ring::cli
