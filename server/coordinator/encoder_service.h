// The public service of encoders. Its handlers only check, decode, call and encode.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "hilbert_ring/v1/encoder.grpc.pb.h"
#include "server/access/caller.h"
#include "server/coordinator/job_calls.h"
#include "server/job/job_services.h"
#include "server/models/model_catalog.h"

namespace hilbert_ring::server {

class EncoderService
    : public v1::EncoderService::WithRawCallbackMethod_Encode<v1::EncoderService::Service> {
 public:
  // All arguments must outlive it.
  EncoderService(const JobServices& services, JobCalls& calls)
      : services_(services), calls_(calls) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Encode(
      grpc::CallbackServerContext* context) override {
    return calls_.Open(context, JobMethod::kEncode);
  }
  grpc::Status PlanEncode(grpc::ServerContext* context, const v1::PlanEncodeRequest* request,
                          v1::PlanResponse* response) override;
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::Model* response) override;

 private:
  absl::Status MakePlanFor(const Caller& caller, grpc::ServerContext& context,
                           const v1::PlanEncodeRequest& request, v1::PlanResponse& response);
  v1::Model Describe(const std::string& name, const absl::StatusOr<EncoderFolder>& folder) const;

  const JobServices services_;
  JobCalls& calls_;
};

}  // namespace hilbert_ring::server
