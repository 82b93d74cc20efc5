// Calls that bring a job, of any service: until their first message is there they take no thread,
// from then on one each.
//
//   grpc::ServerBidiReactor<...>* Attend(context) { return calls.Open(context, JobMethod::kAttend);
//   }
#pragma once

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/callers.h"
#include "server/coordinator/call_threads.h"
#include "server/job/job_services.h"
#include "server/job/served_job.h"
#include "server/job/stream_memory.h"
#include "server/process/call_gate.h"
#include "server/shard/job_memory.h"

namespace hilbert_ring::server {

// For how long a client that was refused stays away, where so much work is predicted.
std::chrono::milliseconds RetryAfter(double seconds_of_work);

// Any thread.
class JobCalls {
 public:
  JobCalls(const JobServices& services, Callers& callers);

  // The call's reactor, which lives until gRPC is done with it.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(
      grpc::CallbackServerContext* context, JobMethod method);

  // From here on jobs are refused.
  void Drain() { draining_ = true; }

  // Whether all jobs have ended within the time.
  bool AwaitIdle(std::chrono::milliseconds limit) { return calls_.AwaitIdle(limit); }

  // What calls that are not admitted hold.
  const JobMemory& waiting() const { return waiting_; }

  // What streams without end hold.
  const StreamMemory& streams() const { return streams_; }

 private:
  struct Call;

  absl::Status Enter(const std::string& peer, const std::shared_ptr<Call>& call);
  void Begin(const std::shared_ptr<Call>& call);
  void Refuse(Call& call, const absl::Status& why);
  // With the time after which the client may come again, where that may help.
  void EndWith(Call& call, const absl::Status& error);
  void Serve(Call& call);
  absl::StatusOr<v1::Report> Run(Call& call, int64_t& bytes);

  const JobServices services_;
  Callers& callers_;
  std::atomic<bool> draining_ = false;
  JobMemory waiting_;  // of calls that are not admitted
  StreamMemory streams_;
  CallGate gate_;
  CallThreads calls_;  // last: they use all of the above
};

// Who calls, where that caller may do this.
absl::StatusOr<Caller> CallerOf(Callers& callers, const grpc::ServerContextBase& context,
                                std::initializer_list<Role> roles, absl::string_view do_what);

}  // namespace hilbert_ring::server
