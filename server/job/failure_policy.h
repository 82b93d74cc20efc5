// What a job does when an execution of it fails: one pure function decides.
//
//   Failure failure = execution.failure();            // what ended it (job_execution.h)
//   const Verdict verdict = Decide(failure, history, fits_without);
//   history.push_back(failure);
//
// ServedJob applies the limit of retries (CoordinatorSettings::max_retries) after it.
//
// A worker that breaks off, stalls or sends corrupt blocks is left out of this job, and backs off.
// An error that may be the job's own asks for another worker's opinion. Workers that report each
// other are tried once more together; then the job does without the one that is reported most.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/cluster/membership.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

enum class FailureKind {
  kOther,   // of the job, its client, or a worker that left: the status says whether to try again
  kWorker,  // a worker broke off, left something out, or sent what cannot be
  kStall,   // a worker made no progress, though it waited for no peer
  kEither,  // a worker's error that may be the job's
  kRing,    // workers report that they lost a peer
};

// A worker lost a peer in the exchange.
struct PeerReport {
  std::shared_ptr<const Member> by;
  std::shared_ptr<const Member> of;  // null: it names no peer
};

// What ended an execution.
struct Failure {
  FailureKind kind = FailureKind::kOther;
  absl::Status status;                   // of the job, if it is not tried again
  std::shared_ptr<const Member> worker;  // of kWorker, kStall and kEither
  std::vector<PeerReport> reports;       // of kRing
  bool slow = false;                     // another such failure would take too long
};

struct Verdict {
  enum class Then { kFail, kRetryWithAll, kRetryWithout };
  Then then = Then::kFail;
  std::shared_ptr<const Member> without;  // the worker to leave out; null: none
  // When the worker backs off: at once, or when the job has ended well without it.
  enum class BackOff { kNow, kIfOthersSucceed } back_off = BackOff::kIfOthersSucceed;
};

// earlier: the job's failures before this one. fits_without: whether the job fits the live workers
// without this one.
Verdict Decide(const Failure& failure, const std::vector<Failure>& earlier,
               absl::FunctionRef<bool(const std::shared_ptr<const Member>&)> fits_without);

// A failure of workers, which other workers, or the same ones once more, need not share.
bool MayRetry(const absl::Status& status);

// A job's time, by the coordinator's clock.
struct ComputeTime {
  Clock::duration taken{0}, limit{0};
};

// The failure of a worker's stream that ended with this status; OK means without figures. A
// worker's report of a peer is kRing.
FailureKind KindOf(const grpc::Status& status, const ComputeTime& time);

// The status that the stream would have ended with.
grpc::Status StatusOf(const v1::RunFailed& failed);

// A worker lacks memory that its heartbeats reported.
bool LacksWhatItHas(const absl::Status& error);

// WORKER_LOST, with the address and how.
absl::Status LostWorker(const std::string& address, absl::string_view how);

// The status of a job whose worker ended its stream so. The end of its connection, and its report
// of a lost peer, is WORKER_LOST; corrupt blocks are WORKER_DATA_LOSS; other errors keep their
// reason.
absl::Status FailureOf(const std::string& address, const grpc::Status& status);

}  // namespace hilbert_ring::server
