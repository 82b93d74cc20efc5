#include "server/coordinator/attention_service.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/plan/choose_order.h"
#include "server/coordinator/cluster_view.h"
#include "server/coordinator/refusals.h"
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

AttentionService::AttentionService(const JobServices& services, Callers& callers, JobCalls& calls,
                                   PlanGate& plans, std::function<bool()> ready)
    : services_(services),
      callers_(callers),
      calls_(calls),
      ready_(std::move(ready)),
      plans_(plans),
      root_watch_(services.memory.data_root == nullptr ? "" : services.memory.data_root->path(),
                  kRootInterval) {
  if (services.memory.data_root != nullptr)
    root_watch_.Look(services.memory.data_root->mark_file());
}

grpc::Status AttentionService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                                    v1::PlanResponse* response) {
  return services_.observers.metrics.requests().Count(
      "Plan", [&] { return MakePlanFor(*context, *request, *response); });
}

grpc::Status AttentionService::MakePlanFor(grpc::ServerContext& context,
                                           const v1::PlanRequest& request,
                                           v1::PlanResponse& response) {
  const auto caller = CallerOf(callers_, context, kAnyRole, "plan");
  if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
  const bool choose = request.spec().ordering().curve() == v1::CURVE_AUTO;
  auto spec = SpecOf(request, choose);
  if (!spec.ok()) return wire::ToGrpc(spec.status());
  if (absl::Status status = Validate(*spec, LimitsOf(services_.limits.settings)); !status.ok()) {
    return wire::ToGrpc(wire::WithReason(status, wire::reason::kInvalidSpec));
  }
  int workers = request.workers();
  if (workers == 0) workers = static_cast<int>(services_.cluster.membership.Live().size());
  if (workers == 0) {
    return wire::ToGrpc(
        wire::ErrorOf(wire::reason::kNoWorkers,
                      "no worker is registered: the request must give the number of workers"));
  }
  const auto gone = [&context] { return context.IsCancelled(); };
  PlanGate::Turn turn;
  if (!PlansFast(*spec, workers) && (turn = plans_.Enter(caller->turns, gone)) == nullptr) {
    return RefusePlan(services_.observers.metrics, plans_, context);
  }
  OrderChoice order;
  auto plan = [&]() -> absl::StatusOr<hilbert_ring::Plan> {
    if (choose) {
      ASSIGN_OR_RETURN(order, TakeOrder(*spec, gone));
    }
    return MakePlan(*spec, workers, gone);
  }();
  if (absl::IsCancelled(plan.status())) return wire::ToGrpc(plan.status());
  if (!plan.ok()) return wire::ToGrpc(wire::WithReason(plan.status(), wire::reason::kInvalidSpec));
  std::vector<std::string> addresses;
  for (const auto& member : services_.cluster.membership.Live())
    addresses.push_back(member->address);
  const PlanTime time = PredictTime(*plan, services_.cluster.rate.MeasuredOf(addresses));
  response = wire::EncodePlan(*plan, {.seconds = time.seconds, .basis = time.basis});
  if (order.curve) response.set_curve(wire::CurveOf(*order.curve));
  response.set_curve_why(order.why);
  return grpc::Status::OK;
}

std::vector<v1::Job> JobsSeenBy(const Caller& caller, const JobTable& jobs) {
  return caller.role == Role::kSubmit ? jobs.List(caller.name) : jobs.List();
}

v1::GetClusterResponse AttentionService::DescribeCluster(const Caller& caller) const {
  v1::GetClusterResponse response;
  response.set_version(std::string(kVersion));
  response.set_ready(ready_());
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
                                          const v1::GetClusterRequest* request,
                                          v1::GetClusterResponse* response) {
  return services_.observers.metrics.requests().Count("GetCluster", [&] {
    const auto caller = CallerOf(callers_, *context, kAnyRole, "see the cluster");
    if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
    *response = DescribeCluster(*caller);
    return grpc::Status(grpc::Status::OK);
  });
}

grpc::Status AttentionService::ListJobs(grpc::ServerContext* context,
                                        const v1::ListJobsRequest* request,
                                        v1::ListJobsResponse* response) {
  return services_.observers.metrics.requests().Count("ListJobs", [&] {
    const auto caller = CallerOf(callers_, *context, kAnyRole, "see jobs");
    if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
    for (v1::Job& job : JobsSeenBy(*caller, services_.observers.jobs)) {
      *response->add_jobs() = std::move(job);
    }
    return grpc::Status(grpc::Status::OK);
  });
}

grpc::Status AttentionService::GetDataRoot(grpc::ServerContext* context,
                                           const v1::GetDataRootRequest* request,
                                           v1::GetDataRootResponse* response) {
  return services_.observers.metrics.requests().Count("GetDataRoot", [&] {
    const auto caller = CallerOf(callers_, *context, {Role::kSubmit, Role::kAdmin}, "run jobs");
    if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
    const DataRoot* const root = services_.memory.data_root;
    if (root == nullptr) {
      return wire::ToGrpc(
          wire::ErrorOf(wire::reason::kNoDataRoot, "the service has no --data-root"));
    }
    const auto folder = FolderOf(*caller);
    if (!folder.ok()) return wire::ToGrpc(folder.status());
    if (root_watch_.mark() != root->mark()) {
      return wire::ToGrpc(
          wire::ErrorOf(wire::reason::kDataRootGone,
                        absl::StrCat("--data-root ", root->path(),
                                     ": is missing, was replaced, or does not answer")));
    }
    response->set_path(root->path());
    response->set_folder(*folder);
    response->set_mark_file(root->mark_file());
    response->set_mark(root->mark());
    const Members live = services_.cluster.membership.Live();
    response->set_workers(static_cast<int>(std::ranges::count_if(
        live, [](const auto& member) { return member->sees_data_root.load(); })));
    return grpc::Status(grpc::Status::OK);
  });
}

grpc::Status AttentionService::CancelJob(grpc::ServerContext* context,
                                         const v1::CancelJobRequest* request,
                                         v1::CancelJobResponse* response) {
  return services_.observers.metrics.requests().Count("CancelJob", [&] {
    const auto caller = CallerOf(callers_, *context, {Role::kSubmit, Role::kAdmin}, "end jobs");
    if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
    const std::string& of = request->caller().empty() ? caller->name : request->caller();
    if (of != caller->name) {
      absl::Status status = CheckRole(*caller, {Role::kAdmin}, "end jobs of others");
      if (!status.ok()) return Refuse(services_.observers.metrics, status);
    }
    if (absl::Status status = CheckJobId(request->job_id()); !status.ok()) {
      return wire::ToGrpc(status);
    }
    const std::string by = caller->name.empty() ? AddressOfPeer(context->peer()) : caller->name;
    return wire::ToGrpc(services_.observers.jobs.Cancel(of, request->job_id(), by));
  });
}

}  // namespace hilbert_ring::server
