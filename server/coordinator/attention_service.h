// The public service: handlers that only check, decode, call and encode.
#pragma once

#include <atomic>
#include <functional>

#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "server/access/callers.h"
#include "server/coordinator/call_threads.h"
#include "server/job/attend_call.h"
#include "server/process/call_gate.h"

namespace hilbert_ring::server {

// The caller's own; those of all for roles that observe.
std::vector<v1::Job> JobsSeenBy(const Caller& caller, const JobTable& jobs);

class AttentionService
    : public v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service> {
 public:
  // ready: asked by GetCluster.
  AttentionService(const JobServices& services, Callers& callers, std::function<bool()> ready);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                    v1::PlanResponse* response) override;
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest* request,
                          v1::GetClusterResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;

  // Workers, rings and counts of jobs as they are now; the role `submit` sees ids of its own jobs.
  v1::GetClusterResponse DescribeCluster(const Caller& caller) const;

  // From here on jobs are refused.
  void Drain() { draining_ = true; }

  // Whether all jobs have ended within the time.
  bool AwaitIdle(std::chrono::milliseconds limit) { return calls_.AwaitIdle(limit); }

  // What calls that are not admitted hold.
  const JobMemory& waiting() const { return waiting_; }

 private:
  struct Call;

  absl::Status Enter(const std::string& peer, const std::shared_ptr<Call>& call);
  void Begin(const std::shared_ptr<Call>& call);
  void Refuse(Call& call, const absl::Status& why);
  void Serve(Call& call);
  grpc::Status RefuseShort(const absl::Status& why);
  grpc::Status MakePlanFor(grpc::ServerContext& context, const v1::PlanRequest& request,
                           v1::PlanResponse& response);
  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context,
                                  std::initializer_list<Role> roles, absl::string_view do_what);

  const JobServices services_;
  Callers& callers_;
  const std::function<bool()> ready_;
  std::atomic<bool> draining_ = false;
  PlanGate plans_;     // that callers ask for
  JobMemory waiting_;  // of calls that are not admitted
  CallGate gate_;
  CallThreads calls_;  // last: they use all of the above
};

}  // namespace hilbert_ring::server
