// What a worker's failure is to the job and its client. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"
#include "hilbert_ring/v1/worker.pb.h"

namespace hilbert_ring::server {

// The status that the stream would have ended with.
grpc::Status StatusOf(const v1::RunFailed& failed);

// Not by the transport, whose statuses carry no details.
bool SaidByWorker(const grpc::Status& status);

// A worker says what a peer's death makes it say, and the culprit's own news may still come.
bool MayBeAPeersFault(const grpc::Status& status);

// WORKER_LOST, with the address and how.
absl::Status LostWorker(const std::string& address, absl::string_view how);

// Why the job fails whose worker ended its stream so. The end of its connection, and what it says
// of a peer that died, is WORKER_LOST; corrupt blocks are WORKER_DATA_LOSS; what else the worker
// found wrong is passed on with its reason.
absl::Status FailureOf(const std::string& address, const grpc::Status& status);

}  // namespace hilbert_ring::server
