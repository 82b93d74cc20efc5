#include "server/worker/worker_service.h"

#include <chrono>
#include <string>
#include <vector>

#include "engine/base/return_if_error.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/support/method_handler.h"
#include "wire/status.h"

namespace hilbert_ring::server {

template <typename Handler>
grpc::Status WorkerService::Serve(const char* method, const grpc::ServerContext& context,
                                  const Handler& handler) {
  return state_.metrics.requests().Count(method, [&] {
    absl::Status status = state_.secret.Check(context, method);
    if (status.ok()) status = handler();
    return wire::ToGrpc(status);
  });
}

WorkerService::WorkerService(WorkerState& state) : state_(state) {
  using Handler =
      grpc::internal::BidiStreamingHandler<WorkerService, grpc::ByteBuffer, grpc::ByteBuffer>;
  const int run = v1::RunRequest::descriptor()
                      ->file()
                      ->FindServiceByName("WorkerService")
                      ->FindMethodByName("Run")
                      ->index();
  // This is how gRPC registers methods with streamed requests; the service owns the handler. It is
  // in place of Run, because its messages are buffers.
  MarkMethodStreamed(run,
                     new Handler(
                         [](WorkerService* service, grpc::ServerContext* context, auto* stream) {
                           return service->Serve("Run", *context, [&] {
                             return RunCall(service->state_, *context, *stream).Serve();
                           });
                         },
                         this));
}

grpc::Status WorkerService::Greet(grpc::ServerContext* context, const v1::GreetRequest* request,
                                  v1::GreetResponse* response) {
  state_.secret.Await(std::chrono::seconds(1));  // which the greeting may overtake
  return Serve("Greet", *context, [] { return absl::OkStatus(); });
}

grpc::Status WorkerService::PrepareRing(grpc::ServerContext* context,
                                        const v1::PrepareRingRequest* request,
                                        v1::PrepareRingResponse* response) {
  return Serve("PrepareRing", *context, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(
        *response->mutable_blob(),
        state_.rings.Prepare({.ring_id = request->ring_id(),
                              .generation = request->generation(),
                              .rank = request->rank(),
                              .size = request->size()},
                             Clock::now() + std::chrono::milliseconds(request->timeout_ms())));
    return absl::OkStatus();
  });
}

grpc::Status WorkerService::ConnectRing(grpc::ServerContext* context,
                                        const v1::ConnectRingRequest* request,
                                        v1::ConnectRingResponse* response) {
  return Serve("ConnectRing", *context, [&] {
    return state_.rings.Connect(
        request->ring_id(), request->generation(),
        std::vector<std::string>(request->blobs().begin(), request->blobs().end()));
  });
}

grpc::Status WorkerService::CloseRing(grpc::ServerContext* context,
                                      const v1::CloseRingRequest* request,
                                      v1::CloseRingResponse* response) {
  return Serve("CloseRing", *context, [&] {
    state_.rings.Close(request->ring_id(), request->generation());
    return absl::OkStatus();
  });
}

}  // namespace hilbert_ring::server
