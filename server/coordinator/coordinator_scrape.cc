// The coordinator's HTTP paths: its figures, its workers' targets, and a page.
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/status_page.h"
#include "server/process/version.h"
#include "wire/reason.h"
#include "wire/status.h"

namespace hilbert_ring::server {

MetricLabels LabelsOfCoordinator() {
  MetricLabels labels = {.methods = {"Attend", "AttendStream", "Plan", "GetCluster", "ListJobs",
                                     "CancelJob", "GetDataRoot", "Register", "Encode", "PlanEncode",
                                     "ListModels", "GetModel"}};
  for (const wire::Reason& reason : wire::AllReasons()) {
    labels.reasons.emplace_back(reason.name);
    if (reason.again == wire::TryAgain::kService ||
        reason.again == wire::TryAgain::kServiceAndClient) {
      labels.causes.emplace_back(reason.name);
    }
  }
  return labels;
}

CoordinatorFigures Coordinator::Figures() {
  const WorkerProcesses* const spawned = Spawned();
  CoordinatorFigures figures{.ready = ready_,
                             .jobs_running = scheduler_.running(),
                             .jobs_queued = scheduler_.waiting(),
                             .workers_busy = scheduler_.busy_workers(),
                             .workers_restarted = spawned != nullptr ? spawned->restarts() : 0,
                             .rings = static_cast<int>(rings_.Describe().size()),
                             .ring_generation = rings_.generation()};
  const auto by_phase = jobs_.CountByPhase();
  for (int i = 0; i < kJobPhases; ++i) {
    const auto phase = static_cast<JobPhase>(i);
    if (phase > JobPhase::kValidating && !HasEnded(phase)) {
      figures.jobs_in_phase.emplace_back(NameOf(phase), by_phase[i]);
    }
  }
  figures.workers = membership_.Describe();
  const JobMemory& waiting = calls_.waiting();
  figures.memory = {{"waiting", waiting.used(), waiting.limit()},
                    {"copies", copies_.used(), copies_.limit()},
                    {"orders", order_memory_.used(), order_memory_.limit()},
                    {"streams", calls_.streams().used(), calls_.streams().limit()},
                    {"order_cache", orders_.resident_bytes(), settings_.order_cache_bytes}};
  figures.caches = {{"order", orders_.hits(), orders_.misses()},
                    {"shard", shards_.hits(), shards_.misses()},
                    {"ring", rings_.hits(), rings_.misses()}};
  figures.certificate_ends = certificates_.Ends();
  return figures;
}

std::map<std::string, HttpEndpoint::Handler> Coordinator::HttpRoutes() {
  const auto refused = [this](const absl::Status& why) {
    metrics_.CountRefused(wire::ReasonOf(why));
  };
  return {{"/", ForRoles(callers_, kAnyRole, "see the service", refused,
                         [this](const Caller& caller) { return ServeStatusPage(caller); })},
          {"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }},
          {"/readyz", [this](std::string_view) { return Ready(); }},
          {"/metrics", ForPrometheus(callers_, refused, [this] { return ServeMetrics(); })},
          {"/targets", ForPrometheus(callers_, refused, [this] { return ServeTargets(); })}};
}

HttpReply Coordinator::ServeMetrics() {
  const int64_t looked = metrics_.Moment();
  const CoordinatorFigures figures = Figures();
  std::set<std::string> there;
  for (const v1::ClusterWorker& worker : figures.workers) there.insert(worker.address());
  metrics_.KeepWorkers(there, looked);
  return {.content_type = Metrics::ContentType(),
          .body = metrics_.Serialize(figures, std::string(kVersion))};
}

// The role `submit` sees its own jobs, as by gRPC. HTTP does not check callers' certificates.
HttpReply Coordinator::ServeStatusPage(const Caller& caller) {
  if (!callers_.ask_for_tokens() && !settings_.callers.client_ca.empty()) {
    return {.status = 403, .body = "this page requires a token (--auth-token-file)\n"};
  }
  std::vector<EndedJob> ended = jobs_.Ended();
  if (caller.role == Role::kSubmit) {
    std::erase_if(ended, [&](const EndedJob& job) { return job.caller != caller.name; });
  }
  return {.content_type = "text/html; charset=utf-8",
          .body = RenderStatusPage({.cluster = attention_service_.DescribeCluster(caller),
                                    .jobs = JobsSeenBy(caller, jobs_),
                                    .ended = std::move(ended)})};
}

// In the format of Prometheus's http_sd_configs.
HttpReply Coordinator::ServeTargets() {
  nlohmann::json targets = nlohmann::json::array();
  for (const v1::ClusterWorker& worker : membership_.Describe()) {
    if (worker.metrics_address().empty()) continue;
    targets.push_back(
        {{"targets", {worker.metrics_address()}}, {"labels", {{"worker", worker.address()}}}});
  }
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // invalid UTF-8
  return {.content_type = "application/json", .body = targets.dump(-1, ' ', false, kReplace)};
}

}  // namespace hilbert_ring::server
