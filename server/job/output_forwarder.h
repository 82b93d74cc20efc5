// Hands the outputs of a shared shard on to the client, from where the worker wrote them.
//
//   OutputForwarder forwarder(std::move(outputs), memory, threads, output, stop);
//   forwarder.Forward(rows_final);   // the worker says that more rows are final
//   forwarder.End();                // it says nothing more: what is left is handed on
//
// The thread that hears the worker hands on what the client takes at once. Where the client is
// slower, a thread of the forwarder's own does so from there on, and the first still hears what the
// worker says.
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
  // False when the client has not made room for the output within `patience`.
  using Output = std::function<absl::StatusOr<bool>(
      const v1::OutputChunk& chunk, std::string_view payload,
      const std::shared_ptr<const void>& owner, int64_t first_slot, Clock::duration patience)>;

  // memory: what the outputs lie in. Threads and stop outlive the forwarder; the stop ends its
  // thread.
  OutputForwarder(OutputRows outputs, std::shared_ptr<const void> memory, KeptThreads& threads,
                  Output output, JobStop& stop);

  // The next four are called by one thread.

  // Local rows [0, rows_final) are final; fewer than before are no news. Errors of the output.
  absl::Status Forward(int64_t rows_final);

  // Whether more rows are final than it has been told of.
  bool IsNews(int64_t rows_final);

  // From here on Forward does not wait for the client.
  bool has_thread() const { return thread_.joinable(); }

  // Waits for the thread, which ends with the last row that is final or with the stop. If there is
  // a thread it must be called before the destructor is.
  void End();

 private:
  absl::StatusOr<bool> ForwardFinal(int64_t rows_final, Clock::duration patience);
  void ForwardRest();

  const std::shared_ptr<const void> memory_;  // shared with outputs on their way
  KeptThreads& threads_;
  const Output output_;
  JobStop& stop_;

  // Of the thread that hands outputs on: the caller's, then thread_.
  OutputRows outputs_;
  bool cut_ = false;  // the chunk: not yet taken by the client
  v1::OutputChunk chunk_;
  std::string_view payload_;

  Mutex mutex_;  // held over no call
  std::condition_variable_any changed_;
  int64_t rows_final_ ABSL_GUARDED_BY(mutex_) = 0;
  bool all_final_ ABSL_GUARDED_BY(mutex_) = false;  // no more will be
  KeptThreads::Task thread_;                        // the caller's
};

}  // namespace hilbert_ring::server
