// A conversation is a client's side of one call of a job, message by message, without input or
// output. A carrier (client/cpp/carrier.h) passes it each response and sends its requests.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::client {

struct AttemptName {
  std::string job_id;
  int attempt = 0;
};

class Conversation {
 public:
  virtual ~Conversation() = default;

  virtual const char* method() const = 0;  // "/hilbert_ring.v1.AttentionService/Attend"

  // The receiving thread:
  virtual v1::AttendRequest Open() = 0;
  // Takes a response, whose output payload is separate. An error ends the call.
  virtual absl::Status Handle(const v1::AttendResponse& response, const wire::Payload& payload) = 0;
  // Returns the report if all outputs have come. The call has ended well, and sends nothing more.
  virtual absl::StatusOr<v1::Report> Finish() = 0;
  virtual bool admitted() const = 0;

  // The sending thread, which may be the receiving one:
  enum class Sending { kNothing, kRows, kEnd };  // nothing yet; call Next; nothing more
  virtual Sending sending() const = 0;           // only Handle and Next change it
  struct Message {
    grpc::ByteBuffer bytes;
    grpc::WriteOptions options;
  };
  // Returns the next message while rows are sent; nothing: check sending() again. May wait for the
  // caller's rows, but not once `over` is set. An error ends the call.
  virtual absl::StatusOr<std::optional<Message>> Next(const std::stop_token& over) = 0;
  virtual void Sent() {}  // the transport has taken the message
};

}  // namespace hilbert_ring::client
