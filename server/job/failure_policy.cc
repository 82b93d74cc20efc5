#include "server/job/failure_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/peer_error.h"
#include "wire/reason.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using Worker = std::shared_ptr<const Member>;

bool MeansLoss(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kUnauthenticated;  // it has registered anew
}

bool IsOfFiles(const absl::Status& error) { return wire::ReasonOf(error).starts_with("FILE_"); }

bool IsOfADisk(const absl::Status& error) {
  const std::string reason = wire::ReasonOf(error);
  return IsOfFiles(error) || reason.starts_with("MODEL_") || reason.starts_with("DATA_ROOT_") ||
         reason == wire::reason::kNoDataRoot.name;
}

bool ReportsALoss(const absl::Status& error) {
  return MeansLoss(error.code()) && !IsOfADisk(error);
}

bool HasCorruptBlocks(const absl::Status& error) {
  return absl::IsDataLoss(error) && !IsOfADisk(error);
}

// A status of the transport carries no details.
bool SaidByWorker(const grpc::Status& status) { return !status.error_details().empty(); }

// The worker in most reports, as reporter or peer; null unless it is in two (in one, if slow).
// Among equals a peer comes before its reporter, an earlier report before a later.
Worker MostReported(const std::vector<PeerReport>& reports, bool slow) {
  Worker most;
  int64_t most_often = slow ? 0 : 1;
  for (const PeerReport& report : reports) {
    for (const Worker& worker : {report.of, report.by}) {
      if (worker == nullptr) continue;
      const int64_t often = std::ranges::count_if(reports, [&](const PeerReport& other) {
        return other.of == worker || other.by == worker;
      });
      if (often > most_often) {
        most = worker;
        most_often = often;
      }
    }
  }
  return most;
}

Worker CutOff(const Failure& failure, const std::vector<Failure>& earlier) {
  std::vector<PeerReport> reports;
  for (const Failure& before : earlier) {
    reports.insert(reports.end(), before.reports.begin(), before.reports.end());
  }
  if (reports.empty() && !failure.slow) return nullptr;  // it may be transient
  reports.insert(reports.end(), failure.reports.begin(), failure.reports.end());
  return MostReported(reports, failure.slow);
}

bool AnotherFailedSo(const Failure& failure, const std::vector<Failure>& earlier) {
  return std::ranges::any_of(earlier, [&](const Failure& before) {
    return before.kind == FailureKind::kEither && before.worker != failure.worker &&
           before.status.code() == failure.status.code() &&
           wire::ReasonOf(before.status) == wire::ReasonOf(failure.status);
  });
}

}  // namespace

Verdict Decide(const Failure& failure, const std::vector<Failure>& earlier,
               absl::FunctionRef<bool(const Worker&)> fits_without) {
  Verdict verdict{.retry = MayRetry(failure.status)};
  switch (failure.kind) {
    case FailureKind::kOther:
      return verdict;
    case FailureKind::kWorker:
    case FailureKind::kStall:
      verdict.without = failure.worker;
      verdict.backs_off_now = true;
      break;
    case FailureKind::kEither:
      verdict.without = failure.worker;
      if (AnotherFailedSo(failure, earlier)) return verdict;  // the error is the job's
      break;
    case FailureKind::kRing:
      verdict.without = CutOff(failure, earlier);
      break;
  }
  // A status that is retried may run anywhere; another needs other workers.
  if (!verdict.retry && verdict.without != nullptr) verdict.retry = fits_without(verdict.without);
  return verdict;
}

bool MayRetry(const absl::Status& status) {
  const wire::Reason* const reason = wire::FindReason(wire::ReasonOf(status));
  return reason != nullptr && (reason->again == wire::TryAgain::kService ||
                               reason->again == wire::TryAgain::kServiceAndClient);
}

FailureKind KindOf(const grpc::Status& status, Clock::duration computing, Clock::duration limit) {
  if (!SaidByWorker(status)) return FailureKind::kWorker;
  const absl::Status error = wire::FromGrpc(status);
  // The worker holds on to a job that the coordinator does not know.
  if (wire::HasReason(error, wire::reason::kWorkerBusy)) return FailureKind::kStall;
  // Half the limit: the clocks of worker and coordinator differ, and start at different moments.
  if (absl::IsDeadlineExceeded(error) && 2 * computing >= limit) return FailureKind::kOther;
  return ReportsALoss(error) || HasCorruptBlocks(error) ? FailureKind::kRing : FailureKind::kEither;
}

grpc::Status StatusOf(const v1::RunFailed& failed) {
  absl::Status status(absl::StatusCode(failed.code()), failed.message());
  if (failed.has_peer()) status = WithPeer(status, failed.peer());
  return wire::ToGrpc(wire::WithReason(status, failed.reason()));
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
  // Also a status of the transport, if the worker has no thread for the call.
  const bool full = absl::IsResourceExhausted(error);
  if (!SaidByWorker(status) && !full) return LostWorker(address, error.message());
  const std::string message = absl::StrCat("worker ", address, ": ", error.message());
  if (ReportsALoss(error)) return wire::ErrorOf(wire::reason::kWorkerLost, message);
  if (HasCorruptBlocks(error)) return wire::ErrorOf(wire::reason::kWorkerDataLoss, message);
  // A reason is a label of metrics: an unknown name is dropped.
  const wire::Reason* const reason = wire::FindReason(wire::ReasonOf(error));
  const absl::Status failure(error.code(), message);
  return reason == nullptr ? failure : wire::WithReason(failure, *reason);
}

}  // namespace hilbert_ring::server
