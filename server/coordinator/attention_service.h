// The public service: handlers that only check, decode, call and encode.
#pragma once

#include <functional>

#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "server/access/callers.h"
#include "server/coordinator/job_calls.h"
#include "server/files/mark_watch.h"
#include "server/job/job_services.h"
#include "server/schedule/plan_gate.h"

namespace hilbert_ring::server {

// The caller's own; those of all for roles that observe.
std::vector<v1::Job> JobsSeenBy(const Caller& caller, const JobTable& jobs);

class AttentionService
    : public v1::AttentionService::WithRawCallbackMethod_AttendStream<
          v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service>> {
 public:
  // ready: asked by GetCluster.
  // plans: of callers. All outlive it.
  AttentionService(const JobServices& services, Callers& callers, JobCalls& calls, PlanGate& plans,
                   std::function<bool()> ready);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(
      grpc::CallbackServerContext* context) override;
  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                    v1::PlanResponse* response) override;
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest* request,
                          v1::GetClusterResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status GetDataRoot(grpc::ServerContext* context, const v1::GetDataRootRequest* request,
                           v1::GetDataRootResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;

  // Workers, rings and counts of jobs as they are now; the role `submit` sees ids of its own jobs.
  v1::GetClusterResponse DescribeCluster(const Caller& caller) const;

 private:
  grpc::Status MakePlanFor(grpc::ServerContext& context, const v1::PlanRequest& request,
                           v1::PlanResponse& response);

  const JobServices services_;
  Callers& callers_;
  JobCalls& calls_;
  const std::function<bool()> ready_;
  PlanGate& plans_;
  MarkWatch root_watch_;  // at the data root: a call does not wait for a mount that hangs
};

}  // namespace hilbert_ring::server
