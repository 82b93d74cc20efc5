// Forwards outputs of a shared shard to the client, from the memory that the worker writes.
//
//   OutputForwarder forwarder(outputs, memory, threads, output, stop);
//   RETURN_IF_ERROR(forwarder.Forward(rows_final));     // at each message of the worker
//   forwarder.End();                                    // all rows are final
//
// The thread that reads the worker's messages forwards while the client takes outputs at once. A
// slow client gets an output thread of the forwarder's own, so the reading thread can go on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "server/process/kept_threads.h"
#include "server/shard/output_rows.h"

namespace hilbert_ring::server {

class OutputForwarder {
 public:
  // Returns false if the client has not made room within `patience`.
  using Output = std::function<absl::StatusOr<bool>(
      const v1::OutputChunk& chunk, std::string_view payload,
      const std::shared_ptr<const void>& owner, int64_t first_slot, Clock::duration patience)>;

  // memory: keeps the outputs alive. Threads and stop outlive the forwarder. The stop ends the
  // output thread.
  OutputForwarder(OutputRows outputs, std::shared_ptr<const void> memory, KeptThreads& threads,
                  Output output, JobStop& stop);

  // Forward, IsNews and End belong to a single thread.
  // Local rows [0, rows_final) are final. Errors of the output.
  absl::Status Forward(int64_t rows_final);

  bool IsNews(int64_t rows_final);  // whether more rows are final than at the last Forward

  // Waits for the thread to forward the last final row, or for the stop. Required before the
  // destructor if there is a thread.
  void End();

 private:
  absl::StatusOr<bool> ForwardFinal(int64_t rows_final, Clock::duration patience);
  void ForwardRest();

  const std::shared_ptr<const void> memory_;  // outputs under way share it
  KeptThreads& threads_;
  const Output output_;
  JobStop& stop_;

  // The caller's until it starts thread_, then thread_'s.
  OutputRows outputs_;
  bool cut_ = false;  // chunk_ is not yet taken
  v1::OutputChunk chunk_;
  std::string_view payload_;

  Mutex mutex_;  // not held during `output`
  std::condition_variable_any changed_;
  int64_t rows_final_ ABSL_GUARDED_BY(mutex_) = 0;
  bool all_final_ ABSL_GUARDED_BY(mutex_) = false;  // no more rows follow
  KeptThreads::Task thread_;                        // the calling thread's
};

}  // namespace hilbert_ring::server
