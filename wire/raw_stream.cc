#include "wire/raw_stream.h"

#include "grpcpp/impl/codegen/rpc_method.h"

namespace hilbert_ring::wire {

std::unique_ptr<RawStream> OpenRawStream(grpc::Channel& channel, const char* method,
                                         grpc::ClientContext& context) {
  using Factory = grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>;
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::BIDI_STREAMING);
  return std::unique_ptr<RawStream>(Factory::Create(&channel, rpc, &context));
}

}  // namespace hilbert_ring::wire
