// A run: a job's part at this worker. run_phase.h has its phases.
//
//   RunCall run(state, context, stream);
//   return run.Serve();                // in the call's thread, from RunOpen to the report
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/run/executor.h"
#include "grpcpp/server_context.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/call_gate.h"
#include "server/shard/job_memory.h"
#include "server/worker/active_calls.h"
#include "server/worker/file_rows.h"
#include "server/worker/lane.h"
#include "server/worker/run_course.h"
#include "server/worker/run_replies.h"
#include "server/worker/run_sender.h"
#include "server/worker/run_shard.h"
#include "server/worker/run_spans.h"
#include "server/worker/run_work.h"
#include "server/worker/worker_state.h"

namespace hilbert_ring::server {

class RunCall {
 public:
  // place: opened with the first message; may be null.
  RunCall(WorkerState& state, grpc::ServerContext& context, RunStream& stream,
          BlockingPlace* place = nullptr)
      : state_(state), context_(context), stream_(stream), place_(place) {}

  // Returns the run's error, which the coordinator also gets as a message. The destructor frees all
  // memory of the run.
  absl::Status Serve();

 private:
  absl::Status Open();
  absl::Status Read();
  absl::Status AwaitLane();
  absl::Status Allocate();
  absl::Status Reserve();
  absl::Status Receive();
  void RunAlone();
  void RunInThreads();
  void Execute();
  absl::StatusOr<Figures> Compute();
  void AwaitComputed();
  void TellFailureBeside();
  v1::WorkerReport Report();
  void Release();
  void Count(const absl::Status& status) const;

  WorkerState& state_;
  grpc::ServerContext& context_;
  RunStream& stream_;
  BlockingPlace* const place_;
  ActiveCalls::Entry entry_{state_.calls, context_};
  RunCourse course_{[this] { return context_.IsCancelled(); }};

  v1::RunOpen open_;
  Lane* lane_ = nullptr;
  std::unique_ptr<RunWork> work_;
  RunFiles files_;   // passed by path
  Lane::Turn turn_;  // returned before outputs leave, if they need no device
  std::optional<JobMemory::Reservation> reservation_;
  std::optional<RunShard> shard_;
  std::optional<RunSender> sender_;
  std::optional<RunSpans> spans_;  // for a trace
  RunMode mode_ = RunMode::kThreads;
  int64_t idle_bytes_ = 0;                   // of the process, before the run
  std::atomic<int64_t> resident_bytes_ = 0;  // at the end of compute
  // The executor's thread has figures_ until the phase is kSending. The sender thread has it from
  // then on.
  absl::StatusOr<Figures> figures_ = absl::InternalError("not run");
  v1::WorkerReport report_;
};

}  // namespace hilbert_ring::server
