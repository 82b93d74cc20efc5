#include "wire/polled_stream.h"

#include "grpcpp/impl/codegen/rpc_method.h"

namespace hilbert_ring::wire {

PolledStream::PolledStream(grpc::Channel& channel, const char* method, grpc::ClientContext& context)
    : context_(context) {
  using Factory =
      grpc::internal::ClientAsyncReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>;
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::BIDI_STREAMING);
  stream_.reset(Factory::Create(&channel, &queue_, rpc, &context, true, nullptr));
}

PolledStream::~PolledStream() {
  if (!finished_) {
    context_.TryCancel();
    Await(write_);
    Await(read_);
    Finish();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool PolledStream::Next(std::chrono::system_clock::time_point until) {
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, until) != grpc::CompletionQueue::GOT_EVENT) return false;
  *static_cast<Operation*>(tag) = {.pending = false, .ok = ok};
  return true;
}

// Every operation ends with the call.
void PolledStream::Await(const Operation& operation) {
  while (operation.pending) Next(std::chrono::system_clock::time_point::max());
}

bool PolledStream::Write(const grpc::ByteBuffer& message, grpc::WriteOptions options) {
  write_.pending = true;
  stream_->Write(message, options, &write_);
  Await(write_);
  return write_.ok;
}

PolledStream::Got PolledStream::Read(grpc::ByteBuffer& message,
                                     std::chrono::system_clock::time_point until) {
  if (!read_.pending) {
    read_.pending = true;
    stream_->Read(&incoming_, &read_);
  }
  while (read_.pending) {
    if (!Next(until)) return Got::kNothing;
  }
  if (!read_.ok) return Got::kEnd;
  message.Swap(&incoming_);
  return Got::kMessage;
}

grpc::Status PolledStream::Finish() {
  finished_ = true;
  finish_.pending = true;
  stream_->Finish(&status_, &finish_);
  Await(finish_);
  return status_;
}

}  // namespace hilbert_ring::wire
