// What a worker's failure is to the job and its client. Pure.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/cluster/membership.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Whose doing it is that a worker's run ended as it did.
enum class Fault {
  kWorkers,  // the worker's: it broke off, left something out, or sent what cannot be
  kPeers,    // perhaps of another of the ring, whose end makes it say so
  kEither,   // the worker's or the job's: decided by whether another worker says the same
  kJobs,     // whoever else takes the job says the same
};

// A worker, and what ended its run; null where nobody is to blame.
struct Blamed {
  std::shared_ptr<const Member> worker;
  Fault fault = Fault::kJobs;
};

// Of a job, by the coordinator's clock.
struct ComputeTime {
  Clock::duration taken{0}, limit{0};
};

// Of a stream that ended so; well means without figures. That its time is over a worker may say
// when it is.
Fault FaultOf(const grpc::Status& status, const ComputeTime& time);

// The status that the stream would have ended with.
grpc::Status StatusOf(const v1::RunFailed& failed);

// Not by the transport, whose statuses carry no details.
bool SaidByWorker(const grpc::Status& status);

// A worker says what a peer's death makes it say, and the culprit's own news may still come.
bool MayBeAPeersFault(const grpc::Status& status);

// A worker lacks what its heartbeats said that it has: memory, not room on a disk.
bool LacksWhatItHas(const absl::Status& error);

// WORKER_LOST, with the address and how.
absl::Status LostWorker(const std::string& address, absl::string_view how);

// Why the job fails whose worker ended its stream so. The end of its connection, and what it says
// of a peer that died, is WORKER_LOST; corrupt blocks are WORKER_DATA_LOSS; what else the worker
// found wrong is passed on with its reason.
absl::Status FailureOf(const std::string& address, const grpc::Status& status);

}  // namespace hilbert_ring::server
