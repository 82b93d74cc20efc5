// The public service of calls that carry many small jobs.
#pragma once

#include "hilbert_ring/v1/many.grpc.pb.h"
#include "server/coordinator/job_calls.h"

namespace hilbert_ring::server {

class SmallJobsService
    : public v1::SmallJobsService::WithRawCallbackMethod_AttendMany<v1::SmallJobsService::Service> {
 public:
  // calls: outlive it.
  explicit SmallJobsService(JobCalls& calls) : calls_(calls) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendMany(
      grpc::CallbackServerContext* context) override {
    return calls_.Open(context, JobMethod::kAttendMany);
  }

 private:
  JobCalls& calls_;
};

}  // namespace hilbert_ring::server
