// The decision after a failed execution. ServedJob then applies CoordinatorSettings::max_retries.
// The job excludes a worker that breaks off, stalls or sends corrupt blocks; the worker backs off.
// An error that may be the job's own is tried on another worker. Workers that report each other are
// tried together once more; then the job excludes the worker with most reports.
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
  kOther,   // of the job, its client, or a worker that left: the status decides
  kWorker,  // a worker broke off, omitted rows, or sent an invalid message
  kStall,   // a worker made no progress, though it waited for no peer
  kEither,  // a worker's error that may be the job's
  kRing,    // workers lost a peer
};

struct PeerReport {  // a worker lost a peer in the exchange
  std::shared_ptr<const Member> by;
  std::shared_ptr<const Member> of;  // null: unknown
};

struct Failure {
  FailureKind kind = FailureKind::kOther;
  absl::Status status;                   // the job's, if it is not tried again
  std::shared_ptr<const Member> worker;  // of kWorker, kStall and kEither
  std::vector<PeerReport> reports;       // of kRing
  bool slow = false;                     // another such failure would take too long
};

struct Verdict {
  bool retry = false;
  std::shared_ptr<const Member> without;  // the worker to exclude; null: no worker
  bool backs_off_now = false;             // that worker; otherwise if others succeed
};

// earlier: the job's failures before. fits_without: whether the job fits the other live workers.
Verdict Decide(const Failure& failure, const std::vector<Failure>& earlier,
               absl::FunctionRef<bool(const std::shared_ptr<const Member>&)> fits_without);

bool MayRetry(const absl::Status& status);

// OK as a worker's stream's status means "without figures". computing: since the last row, by the
// coordinator's clock.
FailureKind KindOf(const grpc::Status& status, Clock::duration computing, Clock::duration limit);

grpc::Status StatusOf(const v1::RunFailed& failed);

bool LacksWhatItHas(const absl::Status& error);

absl::Status LostWorker(const std::string& address, absl::string_view how);

// The job's status for a worker's: WORKER_LOST for a lost connection or peer, WORKER_DATA_LOSS for
// corrupt blocks, otherwise the worker's error with its reason.
absl::Status FailureOf(const std::string& address, const grpc::Status& status);

}  // namespace hilbert_ring::server
