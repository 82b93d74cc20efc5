#include "server/coordinator/attention_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/return_if_error.h"
#include "server/job/job_id.h"
#include "server/process/process_memory.h"
#include "server/process/trace_context.h"
#include "server/process/version.h"
#include "wire/codec.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::server {
namespace {

// Pushback: a client that was refused comes back when about half of the work is predicted to be
// done, each at a time of its own.
constexpr double kLeastPushback = 0.1, kMostPushback = 60;  // seconds
constexpr double kJitter = 0.2;
constexpr double kPlanSeconds = 2;  // of the longest
// A client that does not read its outputs does not see the status behind them.
constexpr auto kStatusTimeout = std::chrono::seconds(30);
// A long job and a short one on each of many workers.
constexpr int kMostRunning = 1024;
// Calls beside those that run or wait: ending, or about to be refused.
constexpr int kSpareCalls = 64;

std::chrono::milliseconds Pushback(double seconds_of_work) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double jitter = std::uniform_real_distribution(1 - kJitter, 1 + kJitter)(random);
  const double seconds = std::clamp(seconds_of_work / 2, kLeastPushback, kMostPushback) * jitter;
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

absl::Status Draining() {
  return wire::ErrorOf(wire::reason::kDraining, "the service is stopping");
}

// Workers and rings say what they work on, and what failed.
void HideJobsOfOthers(const std::vector<v1::Job>& own, v1::GetClusterResponse& cluster) {
  const auto is_own = [&own](const std::string& job_id) {
    return std::any_of(own.begin(), own.end(),
                       [&](const v1::Job& job) { return job.job_id() == job_id; });
  };
  for (v1::ClusterWorker& worker : *cluster.mutable_workers()) {
    if (!is_own(worker.job_id())) worker.clear_job_id();
    if (absl::StartsWith(worker.reason(), "job ")) worker.set_reason("a job failed there");
  }
  for (v1::Ring& ring : *cluster.mutable_rings()) {
    if (!is_own(ring.job_id())) ring.clear_job_id();
  }
}

// Of a call before its first message is there: that message, and what comes behind it.
constexpr int64_t kFirstBytes = wire::kMaxMessageBytes + wire::kLookaheadBytes;

}  // namespace

// An Attend call until its thread has begun.
struct AttentionService::Call {
  std::shared_ptr<AttendStream> stream;
  Caller caller;
  std::string traceparent;
  std::optional<CallGate::Place> place;
  RequestMetrics::Request request;
};

AttentionService::AttentionService(const JobServices& services, Callers& callers,
                                   std::function<bool()> ready)
    : services_(services),
      callers_(callers),
      ready_(std::move(ready)),
      plans_(services.settings.max_plans),
      waiting_(services.settings.waiting_memory_bytes),
      gate_({.calls_per_peer = services.settings.max_calls_per_peer,
             .open_timeout = services.settings.open_timeout}),
      calls_(kMostRunning + services.settings.max_queue + kSpareCalls) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::Attend(
    grpc::CallbackServerContext* context) {
  const std::shared_ptr<AttendStream> stream =
      AttendStream::Make(context,
                         {.idle = services_.settings.idle_timeout,
                          .bytes_per_second = services_.settings.least_rate_bytes},
                         services_.time);
  auto caller = CallerOf(*context, {Role::kSubmit, Role::kAdmin}, "run jobs");
  const std::shared_ptr<Call> call(
      new Call{.stream = stream,
               .caller = caller.ok() ? *caller : Caller{},
               .traceparent = TraceparentOf(*context),
               .place = std::nullopt,
               .request = services_.metrics.requests().Begin("Attend")});
  if (!caller.ok()) {
    Refuse(*call, caller.status());
  } else if (draining_) {
    Refuse(*call, Draining());
  } else if (absl::Status status = Enter(PeerHost(context->peer()), call); !status.ok()) {
    Refuse(*call, status);
  } else {
    stream->AwaitFirst([this, call] { Begin(call); });
  }
  return stream.get();  // lives until gRPC is done with it
}

absl::StatusOr<Caller> AttentionService::CallerOf(const grpc::ServerContextBase& context,
                                                  std::initializer_list<Role> roles,
                                                  absl::string_view do_what) {
  auto caller = callers_.Of(context);
  if (!caller.ok()) return caller;
  absl::Status status = CheckRole(*caller, roles, do_what);
  if (!status.ok()) return status;
  return caller;
}

// Memory that there is not is taken from calls that have said nothing.
absl::Status AttentionService::Enter(const std::string& peer, const std::shared_ptr<Call>& call) {
  auto waiting = waiting_.Reserve(kFirstBytes);
  while (!waiting.ok() && gate_.CutOffOne()) waiting = waiting_.Reserve(kFirstBytes);
  if (!waiting.ok()) {
    return wire::ErrorOf(wire::reason::kWaitingMemory,
                         absl::StrCat("calls that are not admitted have ", waiting_.used(),
                                      " bytes, this one may take ", kFirstBytes, ", the limit is ",
                                      waiting_.limit(), " (--waiting-memory)"));
  }
  call->stream->waiting().emplace(*std::move(waiting));
  auto place = gate_.Enter(peer, [this, weak = std::weak_ptr(call)](const absl::Status& why) {
    const auto silent = weak.lock();
    if (silent == nullptr) return;
    silent->stream->waiting().reset();
    Refuse(*silent, why);
  });
  RETURN_IF_ERROR(place.status());
  call->place.emplace(*std::move(place));
  return absl::OkStatus();
}

// On a thread of gRPC's.
void AttentionService::Begin(const std::shared_ptr<Call>& call) {
  if (!call->place->Open()) return;  // it was cut off, and knows
  AttendStream& stream = *call->stream;
  stream.waiting()->Shrink(stream.first_bytes() + wire::kLookaheadBytes);
  absl::Status started = calls_.Start([this, call] { Serve(*call); });
  if (!started.ok()) Refuse(*call, started);
}

void AttentionService::Refuse(Call& call, const absl::Status& why) {
  call.request.End(why.code());
  services_.metrics.CountRefused(wire::ReasonOf(why));
  const bool retry = absl::IsResourceExhausted(why);
  call.stream->End(
      why, retry ? std::optional(Pushback(services_.scheduler.SecondsOfWork())) : std::nullopt);
}

grpc::Status AttentionService::RefuseShort(const absl::Status& why) {
  services_.metrics.CountRefused(wire::ReasonOf(why));
  return wire::ToGrpc(why);
}

void AttentionService::Serve(Call& call) {
  AttendStream& stream = *call.stream;
  const absl::StatusOr<v1::Report> report =
      AttendCall(services_, stream, call.caller, call.traceparent).Run();
  if (report.ok()) {
    stream.End(*report);
  } else {
    const bool retry = absl::IsResourceExhausted(report.status());
    stream.End(report.status(),
               retry ? std::optional(Pushback(services_.scheduler.SecondsOfWork())) : std::nullopt);
  }
  stream.AwaitDone(kStatusTimeout);
  call.request.End(report.status().code());
  TrimMalloc();
}

grpc::Status AttentionService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                                    v1::PlanResponse* response) {
  return services_.metrics.requests().Count(
      "Plan", [&] { return MakePlanFor(*context, *request, *response); });
}

grpc::Status AttentionService::MakePlanFor(grpc::ServerContext& context,
                                           const v1::PlanRequest& request,
                                           v1::PlanResponse& response) {
  if (auto caller = CallerOf(context, kAnyRole, "plan"); !caller.ok()) {
    return RefuseShort(caller.status());
  }
  auto spec = wire::DecodeJobSpec(request.spec());
  if (!spec.ok()) return wire::ToGrpc(spec.status());
  if (absl::Status status = Validate(*spec, LimitsOf(services_.settings)); !status.ok()) {
    return wire::ToGrpc(wire::WithReason(status, wire::reason::kInvalidSpec));
  }
  int workers = request.workers();
  if (workers == 0) workers = static_cast<int>(services_.membership.Live().size());
  if (workers == 0) {
    return wire::ToGrpc(wire::ErrorOf(wire::reason::kNoWorkers,
                                      "no worker is there: say for how many the plan should be"));
  }
  PlanGate::Turn turn;
  if (!PlansFast(*spec, workers) && (turn = plans_.TryEnter()) == nullptr) {
    context.AddTrailingMetadata(wire::kPushbackKey, std::to_string(Pushback(kPlanSeconds).count()));
    absl::Status refused = absl::ResourceExhaustedError(
        absl::StrCat(plans_.most(), " plans are being made, which is the limit (--max-plans)"));
    services_.metrics.CountRefused(std::string(wire::reason::kTooManyPlans.name));
    return wire::ToGrpc(wire::WithReason(std::move(refused), wire::reason::kTooManyPlans));
  }
  const auto gone = [&context] { return context.IsCancelled(); };
  auto plan = MakePlan(*spec, workers, gone);
  if (absl::IsCancelled(plan.status())) return wire::ToGrpc(plan.status());
  if (!plan.ok()) return wire::ToGrpc(wire::WithReason(plan.status(), wire::reason::kInvalidSpec));
  if (absl::Status status = CountUnion(*plan, gone); !status.ok()) return wire::ToGrpc(status);
  std::vector<std::string> addresses;
  for (const auto& member : services_.membership.Live()) addresses.push_back(member->address);
  const PlanTime time = PredictTime(*plan, services_.rate.MeasuredOf(addresses));
  response = wire::EncodePlan(*plan, {.seconds = time.seconds, .basis = time.basis});
  return grpc::Status::OK;
}

std::vector<v1::Job> JobsSeenBy(const Caller& caller, const JobTable& jobs) {
  return caller.role == Role::kSubmit ? jobs.List(caller.name) : jobs.ListAll();
}

v1::GetClusterResponse AttentionService::DescribeCluster(const Caller& caller) const {
  v1::GetClusterResponse response;
  response.set_version(std::string(kVersion));
  response.set_ready(ready_());
  for (v1::ClusterWorker& worker : services_.membership.Describe()) {
    *response.add_workers() = std::move(worker);
  }
  for (v1::Ring& ring : services_.rings.Describe()) *response.add_rings() = std::move(ring);
  response.set_jobs_running(services_.scheduler.running());
  response.set_jobs_queued(services_.scheduler.waiting());
  // Where callers have no names the jobs are everybody's.
  if (caller.role == Role::kSubmit && !caller.name.empty()) {
    HideJobsOfOthers(services_.jobs.List(caller.name), response);
  }
  return response;
}

grpc::Status AttentionService::GetCluster(grpc::ServerContext* context,
                                          const v1::GetClusterRequest* request,
                                          v1::GetClusterResponse* response) {
  return services_.metrics.requests().Count("GetCluster", [&] {
    const auto caller = CallerOf(*context, kAnyRole, "see the cluster");
    if (!caller.ok()) return RefuseShort(caller.status());
    *response = DescribeCluster(*caller);
    return grpc::Status(grpc::Status::OK);
  });
}

grpc::Status AttentionService::ListJobs(grpc::ServerContext* context,
                                        const v1::ListJobsRequest* request,
                                        v1::ListJobsResponse* response) {
  return services_.metrics.requests().Count("ListJobs", [&] {
    const auto caller = CallerOf(*context, kAnyRole, "see jobs");
    if (!caller.ok()) return RefuseShort(caller.status());
    for (v1::Job& job : JobsSeenBy(*caller, services_.jobs)) {
      *response->add_jobs() = std::move(job);
    }
    return grpc::Status(grpc::Status::OK);
  });
}

grpc::Status AttentionService::CancelJob(grpc::ServerContext* context,
                                         const v1::CancelJobRequest* request,
                                         v1::CancelJobResponse* response) {
  return services_.metrics.requests().Count("CancelJob", [&] {
    const auto caller = CallerOf(*context, {Role::kSubmit, Role::kAdmin}, "end jobs");
    if (!caller.ok()) return RefuseShort(caller.status());
    const std::string& of = request->caller().empty() ? caller->name : request->caller();
    if (of != caller->name) {
      absl::Status status = CheckRole(*caller, {Role::kAdmin}, "end jobs of others");
      if (!status.ok()) return RefuseShort(status);
    }
    if (absl::Status status = CheckJobId(request->job_id()); !status.ok()) {
      return wire::ToGrpc(wire::WithReason(std::move(status), wire::reason::kInvalidJobId));
    }
    const std::string by = caller->name.empty() ? context->peer() : caller->name;
    return wire::ToGrpc(services_.jobs.Cancel(of, request->job_id(), by));
  });
}

}  // namespace hilbert_ring::server
