// A conversation is a client's side of one call of a job, message by message, without input or
// output. A carrier (Carry) passes it each response and sends its requests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/connector.h"
#include "client/cpp/job_options.h"
#include "client/cpp/job_request.h"
#include "client/cpp/retry.h"
#include "engine/base/mutex.h"
#include "grpcpp/channel.h"
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

// Progress of a call, updated by its sending and its receiving thread and reported as one.
class ProgressTeller {
 public:
  // The function may be empty. It must outlive the object.
  explicit ProgressTeller(const std::function<void(const JobProgress&)>& tell) : tell_(tell) {}

  void Reset(JobProgress progress) {
    const MutexLock lock(mutex_);
    progress_ = std::move(progress);
  }

  // Called by any thread. Calls change(JobProgress&), then reports to the caller.
  template <typename Change>
  void Update(Change change) {
    if (!tell_) return;
    const MutexLock lock(mutex_);
    change(progress_);
    tell_(progress_);
  }

 private:
  const std::function<void(const JobProgress&)>& tell_;
  Mutex mutex_;
  JobProgress progress_ ABSL_GUARDED_BY(mutex_);
};

// Blocks until the call is over. The calling thread receives; it also sends rows that are ready
// right after Open. A thread of the call's own sends later rows. The options traceparent and
// cancelled have an effect. GrpcDeadline takes the deadline.
std::variant<v1::Report, AttemptFailure> Carry(Conversation& conversation,
                                               const std::shared_ptr<grpc::Channel>& channel,
                                               absl::Time deadline, const JobOptions& options);

// Makes the conversation of one attempt. Its arguments outlive it.
using NewConversation =
    std::function<std::unique_ptr<Conversation>(const AttemptName& name, ProgressTeller& progress)>;

// begin: initial progress of an attempt; its name is added.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const NewConversation& conversation,
                                   const JobProgress& begin, const JobOptions& options);

// Runs the job as Attend does. INVALID_ARGUMENT also: an option is out of its range.
absl::StatusOr<v1::Report> CallJob(Connector& connector, const JobRequest& request,
                                   const JobOptions& options);
absl::StatusOr<v1::Report> CallJob(const std::string& server, const JobRequest& request,
                                   const JobOptions& options);

}  // namespace hilbert_ring::client
