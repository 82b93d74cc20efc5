#include "wire/reason.h"

#include <algorithm>

namespace hilbert_ring::wire {
namespace {

constexpr Reason kReasons[] = {
    reason::kInvalidOpen,
    reason::kInvalidSpec,
    reason::kDoesNotFit,
    reason::kJobRunning,
    reason::kAttemptFenced,
    reason::kJobNotFound,
    reason::kModelNotFound,
    reason::kModelUnusable,
    reason::kModelChanged,
    reason::kModelNotOnWorkers,
    reason::kAuthToken,
    reason::kRole,
    reason::kOverQuota,
    reason::kQuota,
    reason::kBadCoordinates,
    reason::kChunkMisshapen,
    reason::kChunkMissing,
    reason::kChecksumMismatch,
    reason::kNoDataRoot,
    reason::kDataRootGone,
    reason::kFilePath,
    reason::kFileNotFound,
    reason::kFileNotPermitted,
    reason::kFileMisshapen,
    reason::kFileChanged,
    reason::kFileNoSpace,
    reason::kFileIo,
    reason::kTooManyCalls,
    reason::kWaitingMemory,
    reason::kQueueFull,
    reason::kQueueTimeout,
    reason::kClientIdle,
    reason::kClientDeadline,
    reason::kClientCancelled,
    reason::kCancelledByCaller,
    reason::kJobTimeout,
    reason::kDraining,
    reason::kNoWorkers,
    reason::kMixedTransports,
    reason::kWorkerLost,
    reason::kWorkerDataLoss,
    reason::kWorkerBusy,
    reason::kWorkerMemory,
    reason::kHeldRowsMemory,
    reason::kRowsLost,
    reason::kRowMismatch,
    reason::kRingLeased,
    reason::kJoinToken,
    reason::kPeerName,
};

}  // namespace

std::span<const Reason> AllReasons() { return kReasons; }

const Reason* FindReason(std::string_view name) {
  const auto* const found = std::ranges::find(kReasons, name, &Reason::name);
  return found == std::end(kReasons) ? nullptr : found;
}

}  // namespace hilbert_ring::wire
