// Who sends a job its rows and takes its outputs, as the job's course sees it: a call of a client
// (client_stream.h), or a stream without end, of which the job is an epoch (server/stream).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// A request; the payload of a chunk lies beside it, in the transport's buffers.
struct ClientMessage {
  v1::AttendRequest request;
  wire::Payload payload;
  grpc::ByteBuffer buffer;  // holds the payload
  bool checked = false;     // the payload was, as it came: its chunk has no checksum
};

class JobClient {
 public:
  // When a message leaves. Those of a small job wait for each other: each departure wakes the
  // client, and costs the system more than such a message does.
  enum class SendMode {
    kNow,
    kWithNext,    // or when 64 KiB wait
    kWithReport,  // in one message, where they are few: outputs for a client that takes them so
  };

  // Of outputs that leave with the report: about what the transport takes though the client reads
  // nothing. More is written before, at the client's pace.
  static constexpr int64_t kMostHeldBytes = 64 << 10;

  virtual ~JobClient() = default;

  // Requested when the client cancels, goes away, or its deadline passes.
  virtual JobStop& stop() = 0;

  // The job has its workers: from here on messages are read before they are asked for.
  virtual void ReadAhead() = 0;

  // True with a message, false when nothing more comes. Errors end the job: the stop's reason, or
  // what is wrong with the message. Ends also when `stop` is requested, which the client's own stop
  // must request; nothing is lost. Used by one thread at a time.
  virtual absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) = 0;

  // Of a client whose rows come at once: until so many bytes of messages have arrived that were not
  // read, or a few milliseconds are over. Whether they have. Before or between reads, by the thread
  // that reads. Not at all where none has arrived and the client has not said that they follow.
  enum class Input { kMayFollow, kFollows };
  virtual bool AwaitArrived(int64_t bytes, Input input) = 0;

  // Hands a message over, once the one before is taken: from then on the client gets it, whatever
  // becomes of the job. Any thread. Errors as of Read, after which no write succeeds.
  virtual absl::Status Write(const v1::AttendResponse& response, const JobStop& stop,
                             SendMode mode) = 0;

  // An output chunk with its payload, which `owner` keeps as long as it is in use. False when the
  // message before is not taken within `patience`: this one is left to the caller. What does not
  // leave now is copied.
  virtual absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                                     std::shared_ptr<const void> owner, Clock::duration patience,
                                     const JobStop& stop, SendMode mode) = 0;

  // They leave now.
  absl::Status Write(const v1::AttendResponse& response, const JobStop& stop) {
    return Write(response, stop, SendMode::kNow);
  }
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                             std::shared_ptr<const void> owner, Clock::duration patience,
                             const JobStop& stop) {
    return Write(chunk, payload, std::move(owner), patience, stop, SendMode::kNow);
  }

  // Until all that was handed over is taken, and what it was made from is no longer in use. Errors
  // as of Write.
  virtual absl::Status AwaitTaken(const JobStop& stop) = 0;

  // Hands a message over that may as well be left out: it is, where the one before is not taken.
  virtual void Offer(const v1::AttendResponse& response) = 0;
};

}  // namespace hilbert_ring::server
