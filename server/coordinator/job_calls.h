// Calls of the public services. A job's call takes a thread from its first message on.
//
//   auto* Attend(context) { return calls.Open(context, JobMethod::kAttend); }
//   return calls.Answer("ListJobs", *context, kAnyRole, "see jobs", [&](const Caller& caller) {
//     ...
//   });
#pragma once

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
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
#include "server/process/call_gate.h"
#include "server/schedule/plan_gate.h"
#include "server/shard/job_memory.h"
#include "server/stream/stream_memory.h"

namespace hilbert_ring::server {

absl::Status Stopping();  // DRAINING

// Thread-safe.
class JobCalls {
 public:
  JobCalls(const JobServices& services, Callers& callers, int most_plans);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(
      grpc::CallbackServerContext* context, JobMethod method);

  // Counts a unary call and ends it with the status of `handler`. The role may `do_what`.
  grpc::Status Answer(std::string_view method, const grpc::ServerContext& context,
                      std::initializer_list<Role> roles, absl::string_view do_what,
                      absl::FunctionRef<absl::Status(const Caller&)> handler);

  absl::Status Refused(absl::Status why);  // counts a refusal, and returns it

  // A turn to plan. TOO_MANY_CALLS, with a retry-after of about half of the longest plan.
  absl::StatusOr<PlanGate::Turn> EnterPlan(const Caller& caller, grpc::ServerContext& context);

  void Drain() { draining_ = true; }

  bool AwaitIdle(std::chrono::milliseconds limit) { return calls_.AwaitIdle(limit); }

  const JobMemory& waiting() const { return waiting_; }
  const StreamMemory& streams() const { return streams_; }

 private:
  struct Call;

  absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context,
                                  std::initializer_list<Role> roles, absl::string_view do_what);
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
  PlanGate plans_;     // of unary calls
  JobMemory waiting_;  // of calls before admission
  StreamMemory streams_;
  CallGate gate_;
  CallThreads calls_;  // last: its threads use all of the above
};

}  // namespace hilbert_ring::server
