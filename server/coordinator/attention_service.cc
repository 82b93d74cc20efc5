#include "server/coordinator/attention_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/process/process_memory.h"
#include "server/process/version.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Pushback: a client that was refused comes back when about half of the work is predicted to be
// done, each at a time of its own.
constexpr double kLeastPushback = 0.1, kMostPushback = 60;  // seconds
constexpr double kJitter = 0.2;
// A client that does not read its outputs does not see the status behind them.
constexpr auto kStatusTimeout = std::chrono::seconds(30);
// A long job and a short one on each of many workers.
constexpr int kMostRunning = 1024;
// Calls beside those that run or wait: ending, not yet opened, or about to be refused.
constexpr int kSpareCalls = 64;

std::string CallerOf(const grpc::ServerContextBase& context) {
  std::string caller;
  if (const auto auth = context.auth_context(); auth != nullptr) {
    for (const grpc::string_ref& part : auth->GetPeerIdentity()) {
      caller.append(part.data(), part.size());
    }
  }
  return caller;  // empty: without credentials all callers are one
}

std::chrono::milliseconds Pushback(double seconds_of_work) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double jitter = std::uniform_real_distribution(1 - kJitter, 1 + kJitter)(random);
  const double seconds = std::clamp(seconds_of_work / 2, kLeastPushback, kMostPushback) * jitter;
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

absl::Status Draining() {
  return wire::WithReason(absl::UnavailableError("the service is stopping"), "DRAINING");
}

}  // namespace

AttentionService::AttentionService(const JobServices& services, std::function<bool()> ready)
    : services_(services),
      ready_(std::move(ready)),
      calls_(kMostRunning + services.settings.max_queue + kSpareCalls) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttentionService::Attend(
    grpc::CallbackServerContext* context) {
  const std::shared_ptr<AttendStream> stream = AttendStream::Make(context);
  if (draining_) {
    stream->End(Draining(), std::nullopt);
  } else if (!calls_.Start(
                 [this, stream, caller = CallerOf(*context)] { Serve(*stream, caller); })) {
    stream->End(
        wire::WithReason(absl::ResourceExhaustedError("too many calls are open"), "TOO_MANY_CALLS"),
        Pushback(services_.scheduler.SecondsOfWork()));
  }
  return stream.get();  // lives until gRPC is done with it
}

void AttentionService::Serve(AttendStream& stream, const std::string& caller) {
  const absl::StatusOr<v1::Report> report = AttendCall(services_, stream, caller).Run();
  if (report.ok()) {
    stream.End(*report);
  } else {
    const bool retry = absl::IsResourceExhausted(report.status());
    stream.End(report.status(),
               retry ? std::optional(Pushback(services_.scheduler.SecondsOfWork())) : std::nullopt);
  }
  stream.AwaitDone(kStatusTimeout);
  TrimMalloc();
}

grpc::Status AttentionService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                                    v1::PlanResponse* response) {
  auto spec = wire::DecodeJobSpec(request->spec());
  if (!spec.ok()) return wire::ToGrpc(spec.status());
  if (absl::Status status = Validate(*spec, LimitsOf(services_.settings)); !status.ok()) {
    return wire::ToGrpc(wire::WithReason(status, "INVALID_SPEC"));
  }
  int workers = request->workers();
  if (workers == 0) workers = static_cast<int>(services_.membership.Live().size());
  if (workers == 0) {
    return wire::ToGrpc(wire::WithReason(
        absl::UnavailableError("no worker is there: say for how many the plan should be"),
        "NO_WORKERS"));
  }
  const auto plan = MakePlan(*spec, workers);
  if (!plan.ok()) return wire::ToGrpc(wire::WithReason(plan.status(), "INVALID_SPEC"));
  *response = wire::EncodePlan(*plan);
  return grpc::Status::OK;
}

grpc::Status AttentionService::GetCluster(grpc::ServerContext* context,
                                          const v1::GetClusterRequest* request,
                                          v1::GetClusterResponse* response) {
  response->set_version(std::string(kVersion));
  response->set_ready(ready_());
  for (v1::ClusterWorker& worker : services_.membership.Describe()) {
    *response->add_workers() = std::move(worker);
  }
  for (v1::Ring& ring : services_.rings.Describe()) *response->add_rings() = std::move(ring);
  response->set_jobs_running(services_.scheduler.running());
  response->set_jobs_queued(services_.scheduler.waiting());
  return grpc::Status::OK;
}

grpc::Status AttentionService::ListJobs(grpc::ServerContext* context,
                                        const v1::ListJobsRequest* request,
                                        v1::ListJobsResponse* response) {
  for (v1::Job& job : services_.jobs.List(CallerOf(*context))) {
    *response->add_jobs() = std::move(job);
  }
  return grpc::Status::OK;
}

grpc::Status AttentionService::CancelJob(grpc::ServerContext* context,
                                         const v1::CancelJobRequest* request,
                                         v1::CancelJobResponse* response) {
  return wire::ToGrpc(
      services_.jobs.Cancel(CallerOf(*context), request->job_id(), context->peer()));
}

}  // namespace hilbert_ring::server
