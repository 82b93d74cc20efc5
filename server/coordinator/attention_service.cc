#include "server/coordinator/attention_service.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/plan/choose_order.h"
#include "server/job/job_open.h"
#include "server/job/named_files.h"
#include "server/process/peer_network.h"
#include "server/process/version.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::seconds kRootInterval{1};  // between checks of the root

// choose: decodes with an arbitrary curve, because CURVE_AUTO names no curve.
absl::StatusOr<JobSpec> SpecOf(const v1::PlanRequest& request, bool choose) {
  if (!choose) return wire::DecodeJobSpec(request.spec());
  v1::JobSpec message = request.spec();
  message.mutable_ordering()->set_curve(v1::CURVE_HILBERT);
  return wire::DecodeJobSpec(message);
}

absl::StatusOr<OrderChoice> TakeOrder(JobSpec& spec, const std::function<bool()>& gone) {
  ASSIGN_OR_RETURN(OrderChoice choice, ChooseOrder(spec, gone));
  if (choice.curve) {
    spec.ordering->curve = *choice.curve;
  } else {
    spec.ordering.reset();
  }
  return choice;
}

}  // namespace

AttentionService::AttentionService(const JobServices& services, JobCalls& calls,
                                   const std::atomic<bool>& ready)
    : services_(services),
      calls_(calls),
      ready_(ready),
      root_watch_(services.memory.data_root == nullptr ? "" : services.memory.data_root->path(),
                  kRootInterval) {
  if (services.memory.data_root != nullptr)
    root_watch_.Look(services.memory.data_root->mark_file());
}

grpc::Status AttentionService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                                    v1::PlanResponse* response) {
  return calls_.Answer("Plan", *context, kAnyRole, "plan", [&](const Caller& caller) {
    return MakePlanFor(caller, *context, *request, *response);
  });
}

absl::Status AttentionService::MakePlanFor(const Caller& caller, grpc::ServerContext& context,
                                           const v1::PlanRequest& request,
                                           v1::PlanResponse& response) {
  const bool choose = request.spec().ordering().curve() == v1::CURVE_AUTO;
  ASSIGN_OR_RETURN(JobSpec spec, SpecOf(request, choose));
  if (absl::Status status = Validate(spec, LimitsOf(services_.limits.settings)); !status.ok()) {
    return wire::WithReason(status, wire::reason::kInvalidSpec);
  }
  const Members live = services_.cluster.membership.Live();
  const int workers = request.workers() != 0 ? request.workers() : static_cast<int>(live.size());
  if (workers == 0) {
    return wire::ErrorOf(wire::reason::kNoWorkers,
                         "no worker is registered: the request must give the number of workers");
  }
  PlanGate::Turn turn;
  if (!PlansFast(spec, workers)) {
    ASSIGN_OR_RETURN(turn, calls_.EnterPlan(caller, context));
  }
  const auto gone = [&context] { return context.IsCancelled(); };
  OrderChoice order;
  auto plan = [&]() -> absl::StatusOr<hilbert_ring::Plan> {
    if (choose) {
      ASSIGN_OR_RETURN(order, TakeOrder(spec, gone));
    }
    return MakePlan(spec, workers, gone);
  }();
  if (absl::IsCancelled(plan.status())) return plan.status();
  if (!plan.ok()) return wire::WithReason(plan.status(), wire::reason::kInvalidSpec);
  const PlanTime time = PredictTime(*plan, services_.cluster.rate.MeasuredOf(live));
  response = wire::EncodePlan(*plan, {.seconds = time.seconds, .basis = time.basis});
  if (order.curve) response.set_curve(wire::CurveOf(*order.curve));
  response.set_curve_why(order.why);
  return absl::OkStatus();
}

std::vector<v1::Job> JobsSeenBy(const Caller& caller, const JobTable& jobs) {
  return caller.role == Role::kSubmit ? jobs.List(caller.name) : jobs.List();
}

void HideJobsOfOthers(const std::vector<v1::Job>& own, v1::GetClusterResponse& cluster) {
  const auto hide = [&own](auto& entry) {
    if (std::ranges::find(own, entry.job_id(), &v1::Job::job_id) == own.end()) {
      entry.clear_job_id();
    }
  };
  std::ranges::for_each(*cluster.mutable_rings(), hide);
  for (v1::ClusterWorker& worker : *cluster.mutable_workers()) {
    hide(worker);
    // "failed 2 jobs in a row: job ID: ..."
    if (absl::StrContains(worker.reason(), "job")) worker.set_reason("jobs failed there");
  }
}

v1::GetClusterResponse AttentionService::DescribeCluster(const Caller& caller) const {
  v1::GetClusterResponse response;
  response.set_version(std::string(kVersion));
  response.set_ready(ready_);
  for (v1::ClusterWorker& worker : services_.cluster.membership.Describe()) {
    *response.add_workers() = std::move(worker);
  }
  for (v1::Ring& ring : services_.cluster.rings.Describe()) *response.add_rings() = std::move(ring);
  response.set_jobs_running(services_.cluster.scheduler.running());
  response.set_jobs_queued(services_.cluster.scheduler.waiting());
  // Callers without names share all jobs.
  if (caller.role == Role::kSubmit && !caller.name.empty()) {
    HideJobsOfOthers(services_.observers.jobs.List(caller.name), response);
  }
  return response;
}

grpc::Status AttentionService::GetCluster(grpc::ServerContext* context,
                                          const v1::GetClusterRequest* /*request*/,
                                          v1::GetClusterResponse* response) {
  return calls_.Answer("GetCluster", *context, kAnyRole, "see the cluster",
                       [&](const auto& caller) {
                         *response = DescribeCluster(caller);
                         return absl::OkStatus();
                       });
}

grpc::Status AttentionService::ListJobs(grpc::ServerContext* context,
                                        const v1::ListJobsRequest* /*request*/,
                                        v1::ListJobsResponse* response) {
  return calls_.Answer("ListJobs", *context, kAnyRole, "see jobs", [&](const Caller& caller) {
    for (v1::Job& job : JobsSeenBy(caller, services_.observers.jobs)) {
      *response->add_jobs() = std::move(job);
    }
    return absl::OkStatus();
  });
}

grpc::Status AttentionService::GetDataRoot(grpc::ServerContext* context,
                                           const v1::GetDataRootRequest* /*request*/,
                                           v1::GetDataRootResponse* response) {
  const auto describe = [&](const Caller& caller) -> absl::Status {
    const DataRoot* const root = services_.memory.data_root;
    if (root == nullptr) {
      return wire::ErrorOf(wire::reason::kNoDataRoot, "the service has no --data-root");
    }
    ASSIGN_OR_RETURN(const std::string folder, FolderOf(caller));
    if (root_watch_.mark() != root->mark()) {
      return wire::ErrorOf(wire::reason::kDataRootGone,
                           absl::StrCat("--data-root ", root->path(),
                                        ": is missing, was replaced, or does not answer"));
    }
    response->set_path(root->path());
    response->set_folder(folder);
    response->set_mark_file(root->mark_file());
    response->set_mark(root->mark());
    const Members live = services_.cluster.membership.Live();
    response->set_workers(static_cast<int>(std::ranges::count_if(
        live, [](const auto& member) { return member->sees_data_root.load(); })));
    return absl::OkStatus();
  };
  return calls_.Answer("GetDataRoot", *context, {Role::kSubmit, Role::kAdmin}, "run jobs",
                       describe);
}

grpc::Status AttentionService::CancelJob(grpc::ServerContext* context,
                                         const v1::CancelJobRequest* request,
                                         v1::CancelJobResponse* /*response*/) {
  const auto cancel = [&](const Caller& caller) -> absl::Status {
    const std::string& of = request->caller().empty() ? caller.name : request->caller();
    if (of != caller.name) {
      absl::Status status = CheckRole(caller, {Role::kAdmin}, "end jobs of others");
      if (!status.ok()) return calls_.Refused(status);
    }
    RETURN_IF_ERROR(CheckJobId(request->job_id()));
    const std::string by = caller.name.empty() ? AddressOfPeer(context->peer()) : caller.name;
    return services_.observers.jobs.Cancel(of, request->job_id(), by);
  };
  return calls_.Answer("CancelJob", *context, {Role::kSubmit, Role::kAdmin}, "end jobs", cancel);
}

}  // namespace hilbert_ring::server
