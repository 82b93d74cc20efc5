// Forwards outputs of a shared shard to the client, from where the worker wrote them. The thread
// that reads the worker's messages forwards while the client takes outputs at once. Then a thread
// of the forwarder's own takes over, and the first goes on reading.
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
  // False if the client has not made room within `patience`.
  using Output = std::function<absl::StatusOr<bool>(
      const v1::OutputChunk& chunk, std::string_view payload,
      const std::shared_ptr<const void>& owner, int64_t first_slot, Clock::duration patience)>;

  // memory: of the outputs. Threads and stop outlive the forwarder. The stop ends its thread.
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

  OutputRows outputs_;  // the forwarding thread's: the caller's, then thread_'s
  bool cut_ = false;    // chunk_ is not yet taken
  v1::OutputChunk chunk_;
  std::string_view payload_;

  Mutex mutex_;  // held over no call
  std::condition_variable_any changed_;
  int64_t rows_final_ ABSL_GUARDED_BY(mutex_) = 0;
  bool all_final_ ABSL_GUARDED_BY(mutex_) = false;  // no more rows will be
  KeptThreads::Task thread_;                        // the caller's
};

}  // namespace hilbert_ring::server
