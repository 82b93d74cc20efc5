#include "server/job/worker_failure.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/peer_error.h"
#include "wire/reason.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

bool MeansLoss(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kUnauthenticated;  // it has registered anew meanwhile
}

bool IsOfFiles(const absl::Status& error) { return wire::ReasonOf(error).starts_with("FILE_"); }

// Whoever else reads or writes it may find the same, or has a disk that is better.
bool IsOfADisk(const absl::Status& error) {
  const std::string reason = wire::ReasonOf(error);
  return IsOfFiles(error) || reason.starts_with("MODEL_") || reason.starts_with("DATA_ROOT_") ||
         reason == wire::reason::kNoDataRoot.name;
}

bool SpeaksOfALoss(const absl::Status& error) {
  return MeansLoss(error.code()) && !IsOfADisk(error);
}

bool HasCorruptBlocks(const absl::Status& error) {
  return absl::IsDataLoss(error) && !IsOfADisk(error);
}

// A worker's clock is not ours, and neither counts from the same moment.
bool IsOver(const ComputeTime& time) { return 2 * time.taken >= time.limit; }

}  // namespace

Fault FaultOf(const grpc::Status& status, const ComputeTime& time) {
  if (!SaidByWorker(status)) return Fault::kWorkers;
  const absl::Status error = wire::FromGrpc(status);
  if (absl::IsDeadlineExceeded(error) && IsOver(time)) return Fault::kJobs;
  return SpeaksOfALoss(error) || HasCorruptBlocks(error) ? Fault::kPeers : Fault::kEither;
}

grpc::Status StatusOf(const v1::RunFailed& failed) {
  absl::Status status(absl::StatusCode(failed.code()), failed.message());
  if (failed.has_peer()) status = WithPeer(status, failed.peer());
  return wire::ToGrpc(wire::WithReason(status, failed.reason()));
}

bool SaidByWorker(const grpc::Status& status) { return !status.error_details().empty(); }

bool MayBeAPeersFault(const grpc::Status& status) {
  return SaidByWorker(status) && SpeaksOfALoss(wire::FromGrpc(status));
}

bool LacksWhatItHas(const absl::Status& error) {
  return absl::IsResourceExhausted(error) && !IsOfFiles(error);
}

absl::Status LostWorker(const std::string& address, absl::string_view how) {
  return wire::ErrorOf(wire::reason::kWorkerLost,
                       absl::StrCat("worker ", address, " was lost: ", how));
}

absl::Status FailureOf(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return LostWorker(address, "its stream ended without figures");
  const absl::Status error = wire::FromGrpc(status);
  // The transport's word for a worker that has no thread for the call.
  const bool full = absl::IsResourceExhausted(error);
  if (!SaidByWorker(status) && !full) return LostWorker(address, error.message());
  const std::string message = absl::StrCat("worker ", address, ": ", error.message());
  if (SpeaksOfALoss(error)) return wire::ErrorOf(wire::reason::kWorkerLost, message);
  if (HasCorruptBlocks(error)) return wire::ErrorOf(wire::reason::kWorkerDataLoss, message);
  // A reason is a label of metrics: a name that is none of ours says no more than the code.
  const wire::Reason* const reason = wire::FindReason(wire::ReasonOf(error));
  const absl::Status failure(error.code(), message);
  return reason == nullptr ? failure : wire::WithReason(failure, *reason);
}

}  // namespace hilbert_ring::server
