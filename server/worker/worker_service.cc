#include "server/worker/worker_service.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpcpp/support/method_handler.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// A coordinator says less.
constexpr std::chrono::milliseconds kLongestRingTimeout{60'000};

// The secret may be on its way beside a greeting that is made with it.
constexpr std::chrono::milliseconds kSecretLimit{1000};

}  // namespace

WorkerService::WorkerService(WorkerState& state, CallGate& gate, const CoordinatorSecret& secret)
    : state_(state), gate_(gate), secret_(secret) {
  using Handler =
      grpc::internal::BidiStreamingHandler<WorkerService, grpc::ByteBuffer, grpc::ByteBuffer>;
  const int run = v1::RunRequest::descriptor()
                      ->file()
                      ->FindServiceByName("WorkerService")
                      ->FindMethodByName("Run")
                      ->index();
  // What gRPC does for methods whose requests are streamed: the handler is the service's from here.
  MarkMethodStreamed(run,
                     new Handler([](WorkerService* service, grpc::ServerContext* context,
                                    Stream* stream) { return service->RunRaw(context, stream); },
                                 this));
}

template <typename Handler>
grpc::Status WorkerService::Counted(std::string_view method, const Handler& handler) {
  return state_.metrics != nullptr ? state_.metrics->requests().Count(method, handler) : handler();
}

grpc::Status WorkerService::Greet(grpc::ServerContext* context, const v1::GreetRequest* request,
                                  v1::GreetResponse* response) {
  return Counted("Greet",
                 [&] { return wire::ToGrpc(secret_.Await(*context, "Greet", kSecretLimit)); });
}

grpc::Status WorkerService::PrepareRing(grpc::ServerContext* context,
                                        const v1::PrepareRingRequest* request,
                                        v1::PrepareRingResponse* response) {
  return Counted("PrepareRing", [&] {
    if (absl::Status status = secret_.Check(*context, "PrepareRing"); !status.ok()) {
      return wire::ToGrpc(status);
    }
    const auto timeout =
        std::min(std::chrono::milliseconds(request->timeout_ms()), kLongestRingTimeout);
    auto blob = state_.rings.Prepare({.ring_id = request->ring_id(),
                                      .generation = request->generation(),
                                      .rank = request->rank(),
                                      .size = request->size()},
                                     std::chrono::steady_clock::now() + timeout);
    if (!blob.ok()) return wire::ToGrpc(blob.status());
    response->set_blob(*std::move(blob));
    return grpc::Status::OK;
  });
}

grpc::Status WorkerService::ConnectRing(grpc::ServerContext* context,
                                        const v1::ConnectRingRequest* request,
                                        v1::ConnectRingResponse* response) {
  return Counted("ConnectRing", [&] {
    if (absl::Status status = secret_.Check(*context, "ConnectRing"); !status.ok()) {
      return wire::ToGrpc(status);
    }
    return wire::ToGrpc(state_.rings.Connect(
        request->ring_id(), request->generation(),
        std::vector<std::string>(request->blobs().begin(), request->blobs().end()),
        std::chrono::steady_clock::now() + kLongestRingTimeout));
  });
}

grpc::Status WorkerService::CloseRing(grpc::ServerContext* context,
                                      const v1::CloseRingRequest* request,
                                      v1::CloseRingResponse* response) {
  return Counted("CloseRing", [&] {
    if (absl::Status status = secret_.Check(*context, "CloseRing"); !status.ok()) {
      return wire::ToGrpc(status);
    }
    state_.rings.Close(request->ring_id(), request->generation());
    return grpc::Status::OK;
  });
}

grpc::Status WorkerService::RunRaw(grpc::ServerContext* context, Stream* stream) {
  return Counted("Run", [&] {
    if (absl::Status status = secret_.Check(*context, "Run"); !status.ok()) {
      return wire::ToGrpc(status);
    }
    auto place = BlockingPlace::Enter(gate_, *context);
    if (!place.ok()) return wire::ToGrpc(place.status());
    return wire::ToGrpc(RunCall(state_, *context, *stream, &*place).Serve());
  });
}

}  // namespace hilbert_ring::server
