// A bidirectional stream of a client, of one thread, which waits for a message no longer than it
// wants to. What comes that thread takes from the transport itself: no other has to wake it.
//
//   PolledStream stream(channel, method, context);
//   stream.Write(message);
//   while (true) {
//     switch (stream.Read(message, until)) {
//       case PolledStream::Got::kMessage: ...
//       case PolledStream::Got::kNothing: ...   // yet: read again
//       case PolledStream::Got::kEnd: return stream.Finish();
//     }
//   }
#pragma once

#include <chrono>
#include <memory>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"
#include "grpcpp/support/byte_buffer.h"

namespace hilbert_ring::wire {

class PolledStream {
 public:
  // `method`, "/package.Service/Method", channel and context must outlive it. The context's initial
  // metadata must be corked: they leave with the first message.
  PolledStream(grpc::Channel& channel, const char* method, grpc::ClientContext& context);

  // Cancels a call that has not ended.
  ~PolledStream();
  PolledStream(const PolledStream&) = delete;
  PolledStream& operator=(const PolledStream&) = delete;

  // Until the transport has taken the message; false when the stream has ended.
  bool Write(const grpc::ByteBuffer& message, grpc::WriteOptions options = {});

  enum class Got { kMessage, kNothing, kEnd };

  // After the first Write. kNothing: not until then; what comes later the next call gets.
  Got Read(grpc::ByteBuffer& message, std::chrono::system_clock::time_point until);

  // After kEnd, once.
  grpc::Status Finish();

 private:
  struct Operation {
    bool pending = false, ok = false;
  };

  // Notes one that is done; false when none is by then.
  bool Next(std::chrono::system_clock::time_point until);
  void Await(const Operation& operation);

  grpc::ClientContext& context_;
  grpc::CompletionQueue queue_;
  Operation read_, write_, finish_;  // their addresses are the queue's tags
  grpc::ByteBuffer incoming_;        // the transport's while read_ is pending
  grpc::Status status_;              // while finish_ is
  bool finished_ = false;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
};

}  // namespace hilbert_ring::wire
