// A bidirectional stream of a client, used by one thread, with a time limit for each read. The
// thread polls the transport itself, so no other thread has to wake it.
//
//   PolledStream stream(channel, method, context);
//   stream.Write(message);
//   while (true) {
//     switch (stream.Read(message, until)) {
//       case PolledStream::Got::kMessage: ...
//       case PolledStream::Got::kNothing: ...   // so far: read again
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
  // `method` ("/package.Service/Method"), channel and context must outlive it. The context's
  // initial metadata must be corked: it leaves with the first message.
  PolledStream(grpc::Channel& channel, const char* method, grpc::ClientContext& context);

  // Cancels a call that has not ended.
  ~PolledStream();
  PolledStream(const PolledStream&) = delete;
  PolledStream& operator=(const PolledStream&) = delete;

  // Waits until the transport has taken the message. Returns false if the stream has ended.
  bool Write(const grpc::ByteBuffer& message, grpc::WriteOptions options = {});

  enum class Got { kMessage, kNothing, kEnd };

  // Call it after the first Write. kNothing: no message until then; the next call gets later ones.
  Got Read(grpc::ByteBuffer& message, std::chrono::system_clock::time_point until);

  // Call it once, after kEnd.
  grpc::Status Finish();

 private:
  struct Operation {
    bool pending = false, ok = false;
  };

  // Handles one finished operation; false if none finishes in time.
  bool Next(std::chrono::system_clock::time_point until);
  void Await(const Operation& operation);

  grpc::ClientContext& context_;
  grpc::CompletionQueue queue_;
  Operation read_, write_, finish_;  // their addresses are the queue's tags
  grpc::ByteBuffer incoming_;        // owned by the transport while read_ is pending
  grpc::Status status_;              // owned by the transport while finish_ is pending
  bool finished_ = false;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
};

}  // namespace hilbert_ring::wire
