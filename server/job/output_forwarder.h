// Forwards outputs of a shared shard to the client, from the memory that the worker writes.
//
// The thread that reads the worker's messages forwards while the client takes outputs at once. A
// slow client gets an output thread of the forwarder's own, so the reading thread can go on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "server/process/kept_threads.h"
#include "server/shard/output_rows.h"

namespace hilbert_ring::server {

class JobRun;

class OutputForwarder {
 public:
  // memory: keeps the outputs alive. References outlive the forwarder. The stop ends the output
  // thread.
  OutputForwarder(OutputRows outputs, std::shared_ptr<const void> memory, KeptThreads& threads,
                  JobRun& run, int rank, JobStop& stop)
      : memory_(std::move(memory)),
        threads_(threads),
        run_(run),
        rank_(rank),
        stop_(stop),
        outputs_(std::move(outputs)) {}

  // Forward and End belong to a single thread.
  // Local rows [0, rows_final) are final. Errors of JobRun::Output.
  absl::Status Forward(int64_t rows_final);

  // Waits for the thread to forward the last final row, or for the stop. Required before the
  // destructor if there is a thread.
  void End();

 private:
  absl::StatusOr<bool> ForwardFinal(int64_t rows_final, Clock::duration patience);
  void ForwardRest();

  const std::shared_ptr<const void> memory_;  // outputs under way share it
  KeptThreads& threads_;
  JobRun& run_;
  const int rank_;
  JobStop& stop_;

  // The caller's until it starts thread_, then thread_'s.
  OutputRows outputs_;
  bool cut_ = false;  // chunk_ is not yet taken
  v1::OutputChunk chunk_;
  std::string_view payload_;

  Mutex mutex_;  // not held during JobRun::Output
  std::condition_variable_any changed_;
  int64_t rows_final_ ABSL_GUARDED_BY(mutex_) = 0;
  bool all_final_ ABSL_GUARDED_BY(mutex_) = false;  // no more rows follow
  KeptThreads::Task thread_;                        // the calling thread's
};

}  // namespace hilbert_ring::server
