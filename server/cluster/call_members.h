// Sends one unary call to every member of a ring at once.
#pragma once

#include <functional>
#include <list>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/peer_error.h"
#include "grpcpp/client_context.h"
#include "server/cluster/membership.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "server/process/tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {

// Payloads of an error with the address of a worker. kComplainant: the worker itself returned the
// error. kUnreached: the call did not reach it, or another program answered.
inline constexpr char kComplainant[] = "hilbert-ring/complainant";
inline constexpr char kUnreached[] = "hilbert-ring/unreached";

// Calls `start(stub, context, request, response, done)` for every member. Returns once all calls
// have ended, with responses by rank. The first error ends the other calls and is returned, with
// the address of its worker and a payload. A stop ends the calls too, and its reason is returned. A
// member that leaves ends them with UNAVAILABLE, without a payload, because it may never answer.
//   call, start: "CloseRing", [](auto* stub, auto... a) { stub->async()->CloseRing(a...); }
template <typename Request, typename Response, typename Start>
absl::Status CallMembers(const Members& members, const std::vector<Request>& requests,
                         std::vector<Response>& responses, Deadline deadline, const JobStop* stop,
                         const char* call, const Start& start) {
  struct Answers {
    Mutex mutex;
    ConditionVariable changed;
    size_t count ABSL_GUARDED_BY(mutex) = 0;
    absl::Status first_error ABSL_GUARDED_BY(mutex);
  } answers;
  std::vector<grpc::ClientContext> contexts(members.size());
  responses.assign(members.size(), Response());
  const auto cancel_all = [&contexts] {
    for (grpc::ClientContext& context : contexts) context.TryCancel();
  };
  for (size_t rank = 0; rank < members.size(); ++rank) {
    contexts[rank].set_deadline(OnSystemClock(deadline));
    AddCallToken(contexts[rank], members[rank]->secret, call);
    start(members[rank]->stub.get(), &contexts[rank], &requests[rank], &responses[rank],
          [&, rank](const grpc::Status& answer) {
            const MutexLock lock(answers.mutex);
            if (!answer.ok() && answers.first_error.ok()) {
              const absl::Status error = wire::FromGrpc(answer);
              answers.first_error = wire::WithReason(
                  absl::Status(error.code(), absl::StrCat("worker ", members[rank]->address, ": ",
                                                          error.message())),
                  wire::ReasonOf(error));
              if (const auto peer = PeerOf(error)) {
                answers.first_error = WithPeer(answers.first_error, *peer);
              }
              const bool answered_itself = !answer.error_details().empty();
              answers.first_error.SetPayload(answered_itself ? kComplainant : kUnreached,
                                             absl::Cord(members[rank]->address));
            }
            ++answers.count;
            answers.changed.notify_all();
          });
  }
  const std::stop_callback cancel(stop != nullptr ? stop->token() : std::stop_token(), cancel_all);
  std::list<std::stop_callback<std::function<void()>>> departures;
  for (const auto& member : members) {
    departures.emplace_back(member->departed.get_token(), [&, address = member->address] {
      const MutexLock lock(answers.mutex);
      if (!answers.first_error.ok()) return;
      answers.first_error = absl::UnavailableError(
          absl::StrCat("worker ", address, ": its heartbeats or its connection ended"));
      answers.changed.notify_all();
    });
  }
  // This lock ends before the callbacks above. Their destructors wait for callbacks that take the
  // mutex.
  MutexLock lock(answers.mutex);
  // Every call has a deadline, so all answer.
  answers.changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(answers.mutex) {
    return answers.count == members.size() || !answers.first_error.ok();
  });
  if (answers.count < members.size()) {
    lock.unlock();
    cancel_all();
    lock.lock();
    answers.changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(answers.mutex) {
      return answers.count == members.size();
    });
  }
  if (stop != nullptr && !stop->why().ok()) return stop->why();
  return answers.first_error;
}

}  // namespace hilbert_ring::server
