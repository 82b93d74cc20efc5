// Calls of jobs, of any service. A call takes a thread from its first message on.
//
//   auto* Attend(context) { return calls.Open(context, JobMethod::kAttend); }
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

// The retry-after of a refused client: about half of the predicted work, with jitter.
std::chrono::milliseconds RetryAfter(double seconds_of_work);

// Thread-safe.
class JobCalls {
 public:
  JobCalls(const JobServices& services, Callers& callers);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(
      grpc::CallbackServerContext* context, JobMethod method);

  void Drain() { draining_ = true; }

  bool AwaitIdle(std::chrono::milliseconds limit) { return calls_.AwaitIdle(limit); }

  const JobMemory& waiting() const { return waiting_; }
  const StreamMemory& streams() const { return streams_; }

 private:
  struct Call;

  absl::Status Enter(const std::string& peer, const std::shared_ptr<Call>& call);
  void Begin(const std::shared_ptr<Call>& call);
  void Refuse(Call& call, const absl::Status& why);
  // Adds a retry-after if a later try may succeed.
  void EndWith(Call& call, const absl::Status& error);
  void Serve(Call& call);
  absl::StatusOr<v1::Report> Run(Call& call, int64_t& bytes);

  const JobServices services_;
  Callers& callers_;
  std::atomic<bool> draining_ = false;
  JobMemory waiting_;  // of calls before admission
  StreamMemory streams_;
  CallGate gate_;
  CallThreads calls_;  // last: its threads use all of the above
};

// The caller, or an error if its role may not `do_what`.
absl::StatusOr<Caller> CallerOf(Callers& callers, const grpc::ServerContextBase& context,
                                std::initializer_list<Role> roles, absl::string_view do_what);

}  // namespace hilbert_ring::server
