// The worker's gRPC service.
#pragma once

#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/worker/run_call.h"

namespace hilbert_ring::server {

class WorkerService : public v1::WorkerService::Service {
 public:
  explicit WorkerService(WorkerState& state);

  grpc::Status Greet(grpc::ServerContext* context, const v1::GreetRequest* request,
                     v1::GreetResponse* response) override;
  grpc::Status PrepareRing(grpc::ServerContext* context, const v1::PrepareRingRequest* request,
                           v1::PrepareRingResponse* response) override;
  grpc::Status ConnectRing(grpc::ServerContext* context, const v1::ConnectRingRequest* request,
                           v1::ConnectRingResponse* response) override;
  grpc::Status CloseRing(grpc::ServerContext* context, const v1::CloseRingRequest* request,
                         v1::CloseRingResponse* response) override;

 private:
  // Counts and authenticates a call.
  template <typename Handler>
  grpc::Status Serve(const char* method, const grpc::ServerContext& context,
                     const Handler& handler);

  WorkerState& state_;
};

}  // namespace hilbert_ring::server
