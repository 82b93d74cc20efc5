// The public service of attention jobs. Its handlers only check, decode, call and encode.
#pragma once

#include <atomic>
#include <vector>

#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "server/access/caller.h"
#include "server/coordinator/job_calls.h"
#include "server/files/mark_watch.h"
#include "server/job/job_services.h"

namespace hilbert_ring::server {

// The caller's own jobs; all jobs if its role observes.
std::vector<v1::Job> JobsSeenBy(const Caller& caller, const JobTable& jobs);

// Removes ids and errors of others' jobs. own: the caller's jobs.
void HideJobsOfOthers(const std::vector<v1::Job>& own, v1::GetClusterResponse& cluster);

class AttentionService
    : public v1::AttentionService::WithRawCallbackMethod_AttendStream<
          v1::AttentionService::WithRawCallbackMethod_Attend<v1::AttentionService::Service>> {
 public:
  // All arguments must outlive it.
  AttentionService(const JobServices& services, JobCalls& calls, const std::atomic<bool>& ready);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attend(
      grpc::CallbackServerContext* context) override {
    return calls_.Open(context, JobMethod::kAttend);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(
      grpc::CallbackServerContext* context) override {
    return calls_.Open(context, JobMethod::kAttendStream);
  }
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

  // The role `submit` sees only ids of its own jobs.
  v1::GetClusterResponse DescribeCluster(const Caller& caller) const;

 private:
  absl::Status MakePlanFor(const Caller& caller, grpc::ServerContext& context,
                           const v1::PlanRequest& request, v1::PlanResponse& response);

  const JobServices services_;
  JobCalls& calls_;
  const std::atomic<bool>& ready_;
  MarkWatch root_watch_;  // of the data root: a mount that hangs does not block calls
};

}  // namespace hilbert_ring::server
