// The reasons of the service's statuses: name on the wire, code, retries and meaning.
// docs/errors.md has the same table.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace hilbert_ring::wire {

enum class TryAgain {
  kNobody,            // a retry fails again
  kService,           // the service retries on other workers, within its limit
  kServiceAndClient,  // the client may retry after the service, under the same job id
  kClient,
  kLater,  // the client retries after the status's retry-after
};

struct Reason {
  std::string_view name;
  // Code of an error that the service finds itself; other errors keep their own.
  absl::StatusCode code;
  TryAgain again;
  std::string_view meaning;
};

namespace reason {

using enum absl::StatusCode;
using enum TryAgain;

// The client's request.
inline constexpr Reason kInvalidOpen = {"INVALID_OPEN", kInvalidArgument, kNobody,
                                        "a request, or a field of it, is wrong"};
inline constexpr Reason kInvalidSpec = {"INVALID_SPEC", kInvalidArgument, kNobody,
                                        "a field of the spec is wrong or over a limit"};
inline constexpr Reason kDoesNotFit = {"DOES_NOT_FIT", kFailedPrecondition, kNobody,
                                       "the job can never fit this deployment"};
inline constexpr Reason kJobRunning = {
    "JOB_RUNNING", kAlreadyExists, kNobody,
    "this attempt runs already (tried again after a lost connection)"};
inline constexpr Reason kAttemptFenced = {"ATTEMPT_FENCED", kAborted, kNobody,
                                          "a newer attempt has the job"};
inline constexpr Reason kJobNotFound = {"JOB_NOT_FOUND", kNotFound, kNobody,
                                        "no job of this id is the caller's"};

// Models.
inline constexpr Reason kModelNotFound = {"MODEL_NOT_FOUND", kNotFound, kNobody,
                                          "the service has no model of this name"};
inline constexpr Reason kModelUnusable = {
    "MODEL_UNUSABLE", kFailedPrecondition, kNobody,
    "the model's folder is not right; UNAVAILABLE: it changes"};
inline constexpr Reason kModelChanged = {"MODEL_CHANGED", kFailedPrecondition, kNobody,
                                         "the model is another version than the one meant"};
inline constexpr Reason kModelNotOnWorkers = {"MODEL_NOT_ON_WORKERS", kUnavailable, kClient,
                                              "no worker that is up has this version of the model"};

// The caller.
inline constexpr Reason kAuthToken = {"AUTH_TOKEN", kUnauthenticated, kNobody,
                                      "the call has no token, or an unknown one"};
inline constexpr Reason kRole = {"ROLE", kPermissionDenied, kNobody,
                                 "the role of the caller's token may not do this"};
inline constexpr Reason kOverQuota = {"OVER_QUOTA", kOutOfRange, kNobody,
                                      "the job alone is beyond the caller's quota"};
inline constexpr Reason kQuota = {"QUOTA", kResourceExhausted, kLater,
                                  "the caller's jobs take what its quota allows"};

// The client's chunks.
inline constexpr Reason kBadCoordinates = {"BAD_COORDINATES", kInvalidArgument, kNobody,
                                           "coordinates are out of range"};
inline constexpr Reason kChunkMisshapen = {
    "CHUNK_MISSHAPEN", kInvalidArgument, kNobody,
    "a chunk is not part of the job, or its rows are not the next ones"};
inline constexpr Reason kChunkMissing = {"CHUNK_MISSING", kInvalidArgument, kNobody,
                                         "the client ended before all rows had come"};
inline constexpr Reason kChecksumMismatch = {"CHECKSUM_MISMATCH", kDataLoss, kNobody,
                                             "received rows differ from the sent ones"};

// Tensors passed by path.
inline constexpr Reason kNoDataRoot = {"NO_DATA_ROOT", kFailedPrecondition, kNobody,
                                       "the service takes no files (--data-root)"};
inline constexpr Reason kDataRootGone = {"DATA_ROOT_GONE", kUnavailable, kClient,
                                         "the service, or its workers, do not see the data root"};
inline constexpr Reason kFilePath = {
    "FILE_PATH", kInvalidArgument, kNobody,
    "a file's path leads out of the caller's folder, or to no regular file"};
inline constexpr Reason kFileNotFound = {"FILE_NOT_FOUND", kNotFound, kNobody,
                                         "a file, or its folder, is not there"};
inline constexpr Reason kFileNotPermitted = {"FILE_NOT_PERMITTED", kPermissionDenied, kNobody,
                                             "the service may not read or write a file"};
inline constexpr Reason kFileMisshapen = {"FILE_MISSHAPEN", kInvalidArgument, kNobody,
                                          "a file's header or size is not that of its tensor"};
inline constexpr Reason kFileChanged = {"FILE_CHANGED", kFailedPrecondition, kNobody,
                                        "a file was written to, cut or replaced during the job"};
inline constexpr Reason kFileNoSpace = {"FILE_NO_SPACE", kResourceExhausted, kNobody,
                                        "the disk, or a quota of it, has no room for an output"};
inline constexpr Reason kFileIo = {"FILE_IO", kInternal, kNobody,
                                   "the system could not read or write a file"};

// Limits of calls, memory and the queue.
inline constexpr Reason kTooManyCalls = {
    "TOO_MANY_CALLS", kResourceExhausted, kLater,
    "calls, or plans, are at their limit, of all or of this peer"};
inline constexpr Reason kWaitingMemory = {
    "WAITING_MEMORY", kResourceExhausted, kLater,
    "memory of jobs that wait, coordinates or streams is at its limit"};
inline constexpr Reason kQueueFull = {"QUEUE_FULL", kResourceExhausted, kLater,
                                      "the queue of waiting jobs is full"};
inline constexpr Reason kQueueTimeout = {"QUEUE_TIMEOUT", kResourceExhausted, kLater,
                                         "the job's turn did not come in time"};

// The client's pace, and the end of jobs.
inline constexpr Reason kClientIdle = {
    "CLIENT_IDLE", kDeadlineExceeded, kNobody,
    "the client neither sent nor read in time, or below the least rate"};
inline constexpr Reason kClientDeadline = {"CLIENT_DEADLINE", kDeadlineExceeded, kNobody,
                                           "the client's deadline passed"};
inline constexpr Reason kClientCancelled = {"CLIENT_CANCELLED", kCancelled, kNobody,
                                            "the client cancelled the call, or is gone"};
inline constexpr Reason kCancelledByCaller = {"CANCELLED_BY_CALLER", kCancelled, kNobody,
                                              "CancelJob ended the job"};
inline constexpr Reason kJobTimeout = {"JOB_TIMEOUT", kDeadlineExceeded, kNobody,
                                       "compute took longer than the limit"};
inline constexpr Reason kDraining = {"DRAINING", kUnavailable, kClient, "the service is stopping"};

// Workers.
inline constexpr Reason kNoWorkers = {"NO_WORKERS", kUnavailable, kClient,
                                      "no worker is there, or too few to hold the job"};
inline constexpr Reason kMixedTransports = {"MIXED_TRANSPORTS", kFailedPrecondition, kNobody,
                                            "the workers do not exchange in the same way"};
inline constexpr Reason kWorkerLost = {"WORKER_LOST", kAborted, kServiceAndClient,
                                       "a worker died, hung or cannot be reached"};
inline constexpr Reason kWorkerDataLoss = {"WORKER_DATA_LOSS", kDataLoss, kService,
                                           "a worker found corrupt blocks"};
inline constexpr Reason kWorkerBusy = {"WORKER_BUSY", kUnavailable, kNobody,
                                       "a worker does not get rid of the job before"};
inline constexpr Reason kWorkerMemory = {
    "WORKER_MEMORY", kResourceExhausted, kNobody,
    "a worker has no memory for its shard, or for a model's weights"};
inline constexpr Reason kHeldRowsMemory = {"HELD_ROWS_MEMORY", kResourceExhausted, kNobody,
                                           "the coordinator has no memory for rows that it holds"};
inline constexpr Reason kRowsLost = {"ROWS_LOST", kAborted, kNobody,
                                     "rows died with a worker, and the client does not resend"};
inline constexpr Reason kRowMismatch = {"ROW_MISMATCH", kDataLoss, kNobody,
                                        "a row differs when computed again (--check-rows)"};
inline constexpr Reason kRingLeased = {"RING_LEASED", kFailedPrecondition, kNobody,
                                       "another job has the ring, or it was formed anew since"};
inline constexpr Reason kJoinToken = {
    "JOIN_TOKEN", kUnauthenticated, kNobody,
    "the join token, or the coordinator's own, is missing or wrong"};
inline constexpr Reason kPeerName = {
    "PEER_NAME", kUnauthenticated, kNobody,
    "a worker's certificate has the wrong name, or a caller's has no name"};

}  // namespace reason

std::span<const Reason> AllReasons();

const Reason* FindReason(std::string_view name);

}  // namespace hilbert_ring::wire
