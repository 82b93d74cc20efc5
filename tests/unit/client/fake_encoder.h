// An EncoderService in the test's own process. Its model "small" has 4 numbers a tile, 16 an
// embedding, 2 layers and 2 heads. Token t of state s comes back as 16 times 100 s + t. Slide i,
// pooled, comes back as 100 s + i. Row t of the map is t / 2 (by head: t / 2 + head).
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "hilbert_ring/v1/encoder.grpc.pb.h"
#include "tests/unit/client/fake_record.h"
#include "tests/unit/client/fake_server.h"

namespace hilbert_ring::client {

struct FakeEncoderBehaviour {
  int failures = 0;                  // number of first Encode calls that end with UNAVAILABLE
  std::optional<v1::Resend> resend;  // requested after the first chunk of tiles
  bool positions = true;             // of the model
  std::optional<int64_t> spoilt = std::nullopt;  // row of the first output that is not finite
};

class FakeEncoder final : public v1::EncoderService::Service {
 public:
  explicit FakeEncoder(FakeEncoderBehaviour behaviour = {}, int port = 0);

  std::string address() const { return server_.address(); }

  FakeRecord record() const;
  int calls() const;               // of Encode
  v1::EncodeSpec planned() const;  // of the last call of PlanEncode

  static v1::Model Model(bool positions);

  grpc::Status Encode(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>* stream) override;
  // A plan of one operation a tile on the requested workers. The first call gets a retry-after.
  grpc::Status PlanEncode(grpc::ServerContext* context, const v1::PlanEncodeRequest* request,
                          v1::PlanResponse* response) override;
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* request,
                          v1::ListModelsResponse* response) override;
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::Model* response) override;

 private:
  const FakeEncoderBehaviour behaviour_;
  mutable std::mutex mutex_;
  FakeRecord record_;  // guarded by mutex_
  int calls_ = 0;      // guarded by mutex_, like those below
  int plans_ = 0;
  v1::EncodeSpec planned_;
  FakeServer server_;
};

}  // namespace hilbert_ring::client
