#include "wire/reason.h"

#include <algorithm>

namespace hilbert_ring::wire {
namespace {

constexpr Reason kReasons[] = {
    reason::kMalformed,
    reason::kInvalidOpen,
    reason::kInvalidJobId,
    reason::kInvalidSpec,
    reason::kDoesNotFit,
    reason::kJobRunning,
    reason::kAttemptFenced,
    reason::kJobNotFound,
    reason::kModelNotFound,
    reason::kModelUnusable,
    reason::kModelChanged,
    reason::kModelNotOnWorkers,
    reason::kModelMemory,
    reason::kAuthToken,
    reason::kRole,
    reason::kOverQuota,
    reason::kQuota,
    reason::kBadTensor,
    reason::kBadCoordinates,
    reason::kCoordsFirst,
    reason::kChunkMisshapen,
    reason::kChunkPastEnd,
    reason::kChunkOverlap,
    reason::kChunksTooScattered,
    reason::kChunkMissing,
    reason::kRowsOutOfOrder,
    reason::kTensorAhead,
    reason::kChecksumMismatch,
    reason::kRowsMisshapen,
    reason::kNoDataRoot,
    reason::kDataRootGone,
    reason::kDataRootNotOnWorkers,
    reason::kFilePath,
    reason::kFileSymlink,
    reason::kFileNotFound,
    reason::kFileNotPermitted,
    reason::kFileDirectory,
    reason::kFileSpecial,
    reason::kFileMisshapen,
    reason::kFileChanged,
    reason::kFileNoSpace,
    reason::kFileIo,
    reason::kTooManyCalls,
    reason::kTooManyPlans,
    reason::kNoThreads,
    reason::kWaitingMemory,
    reason::kOrderMemory,
    reason::kStreamMemory,
    reason::kQueueFull,
    reason::kQueueTimeout,
    reason::kOpenTimeout,
    reason::kClientIdle,
    reason::kClientSlow,
    reason::kClientDeadline,
    reason::kClientCancelled,
    reason::kCancelledByCaller,
    reason::kJobTimeout,
    reason::kDraining,
    reason::kNoWorkers,
    reason::kNotEnoughWorkers,
    reason::kMixedTransports,
    reason::kWorkerLost,
    reason::kWorkerDataLoss,
    reason::kWorkerBusy,
    reason::kWorkerMemory,
    reason::kHeldRowsMemory,
    reason::kRowsLost,
    reason::kRowMismatch,
    reason::kRingLeased,
    reason::kStaleGeneration,
    reason::kJoinToken,
    reason::kPeerName,
    reason::kCallToken,
};

}  // namespace

std::span<const Reason> AllReasons() { return kReasons; }

const Reason* FindReason(std::string_view name) {
  const auto* const found = std::ranges::find(kReasons, name, &Reason::name);
  return found == std::end(kReasons) ? nullptr : found;
}

}  // namespace hilbert_ring::wire
