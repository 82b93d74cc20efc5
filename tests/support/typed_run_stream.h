#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/worker/run_call.h"
#include "wire/codec.h"
#include "wire/payload_message.h"

namespace hilbert_ring::testing {

class TypedRunStream : public server::RunStream {
 public:
  // Requests come in slices of `slice_bytes`, as from a transport.
  explicit TypedRunStream(size_t slice_bytes = 1000) : slice_bytes_(slice_bytes) {}

  void SendInitialMetadata() final {}
  bool NextMessageSize(uint32_t* size) final {
    *size = wire::kMaxMessageBytes;
    return true;
  }
  bool Read(grpc::ByteBuffer* message) final {
    v1::RunRequest request;
    if (!Next(request)) return false;
    const std::string bytes = request.SerializePartialAsString();
    std::vector<grpc::Slice> slices;
    for (size_t begin = 0; begin < bytes.size(); begin += slice_bytes_) {
      slices.emplace_back(bytes.data() + begin, std::min(slice_bytes_, bytes.size() - begin));
    }
    *message = grpc::ByteBuffer(slices.data(), slices.size());
    return true;
  }
  bool Write(const grpc::ByteBuffer& message, grpc::WriteOptions options) final {
    grpc::ByteBuffer buffer = message;
    v1::RunResponse response;
    return wire::Parse(buffer, response) && TakeResponse(response, options);
  }

 private:
  // False at the end.
  virtual bool Next(v1::RunRequest& request) = 0;
  virtual bool TakeResponse(const v1::RunResponse& response, grpc::WriteOptions options) = 0;

  const size_t slice_bytes_;
};

}  // namespace hilbert_ring::testing
