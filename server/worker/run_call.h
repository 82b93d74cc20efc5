// The story of one job at one worker.
//
//   RunOpen -> the plan from its shards -> memory, ring -> RunReady -> order parts, rows ->
//   RowsDone
//   -> Execute -> outputs -> figures
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/plan/plan.h"
#include "engine/run/executor.h"
#include "engine/run/shard_store.h"
#include "grpcpp/server_context.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/worker/job_memory.h"
#include "server/worker/ring_table.h"

namespace hilbert_ring::server {

// What all jobs of a worker share.
struct WorkerState {
  const uint64_t incarnation;
  Device& device;
  JobMemory& memory;
  RingTable& rings;
  // Held while a job runs: the device takes one at a time, and its memory is measured against the
  // idle process.
  std::timed_mutex& turn;
};

using RunStream = grpc::ServerReaderWriter<v1::RunResponse, v1::RunRequest>;

class RunCall {
 public:
  RunCall(WorkerState& state, grpc::ServerContext& context, RunStream& stream)
      : state_(state), context_(context), stream_(stream) {}

  // The whole job. All its memory is free when the call is destroyed.
  absl::Status Serve();

 private:
  absl::Status Open();
  absl::Status AwaitTurn(std::unique_lock<std::timed_mutex>& turn);
  absl::Status Allocate();
  absl::Status ReceiveRows();
  absl::Status Compute();
  absl::StatusOr<Figures> ExecuteOnThread(Deadline deadline);
  absl::Status SendOutputs();
  absl::Status SendFigures();
  absl::Status Send(const v1::RunResponse& response);

  WorkerState& state_;
  grpc::ServerContext& context_;
  RunStream& stream_;

  v1::RunOpen open_;
  std::optional<Plan> plan_;
  int rank_ = 0;
  int64_t idle_bytes_ = 0;                   // of the process, before the job
  std::atomic<int64_t> resident_bytes_ = 0;  // at the end of compute
  std::optional<JobMemory::Reservation> reservation_;
  std::optional<RingTable::Lease> ring_;
  std::string transport_ = "none";
  std::unique_ptr<ShardStore> store_;
  Figures figures_;
};

}  // namespace hilbert_ring::server
