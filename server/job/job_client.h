// The sender of a job's rows and receiver of its outputs: a client's call (client_stream.h), or an
// epoch of a stream (server/stream).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

struct ClientMessage {
  v1::AttendRequest request;
  wire::Payload payload;
  grpc::ByteBuffer buffer;  // holds the payload
  bool checked = false;     // the payload was checked on arrival: its chunk has no checksum
};

class JobClient {
 public:
  // When a message leaves. Each departure wakes the client and costs more than a small message, so
  // a small job's messages wait for each other.
  enum class SendMode {
    kNow,
    kWithNext,    // or when 64 KiB wait
    kWithReport,  // in the report's message, up to kMostHeldBytes; more is written before
  };

  // The transport takes about this much though the client reads nothing.
  static constexpr int64_t kMostHeldBytes = 64 << 10;

  virtual ~JobClient() = default;

  virtual JobStop& stop() = 0;

  virtual void ReadAhead() = 0;  // from here on messages are read before Read asks for them

  // Returns false when nothing more comes. Ends also when `stop` is requested, which the client's
  // own stop must request; no message is lost. Not thread-safe.
  virtual absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) = 0;

  // Waits a few milliseconds for `bytes` of unread messages, and returns whether they arrived.
  // kMayFollow: waits only if a message has arrived. Called by the reading thread, between reads.
  enum class Input { kMayFollow, kFollows };
  virtual bool AwaitArrived(int64_t bytes, Input input) = 0;

  // Passes a message on once the one before is taken; from then on it leaves even if the job fails.
  // Any thread. Errors as of Read; no later write succeeds.
  virtual absl::Status Write(const v1::AttendResponse& response, const JobStop& stop) = 0;

  // `owner` keeps the payload alive. False, and the chunk stays the caller's, if the message before
  // is not taken within `patience`. A chunk that does not leave now is copied.
  virtual absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                                     std::shared_ptr<const void> owner, Clock::duration patience,
                                     const JobStop& stop, SendMode mode) = 0;

  // Waits until every message is taken and its memory no longer in use. Errors as of Write.
  virtual absl::Status AwaitTaken(const JobStop& stop) = 0;

  virtual void Offer(const v1::AttendResponse& response) = 0;
};

}  // namespace hilbert_ring::server
