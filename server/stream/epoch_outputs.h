// Outputs of a stream: an epoch's are collected while those of the epoch before leave, in the order
// of tokens.
//
//   EpochOutputs outputs(epochs, client);
//   outputs.Send(stop);                              // a thread of its own
//   ASSIGN_OR_RETURN(EpochBuffer* buffer, outputs.Await(stop));   // the epochs' thread
//   buffer->Place(chunk, payload);                   // threads of the epoch's job
//   outputs.Leave(*buffer, epoch);                   // the epoch is done
//   outputs.End();                                   // after the last epoch
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/job/job_client.h"
#include "server/process/job_stop.h"
#include "server/stream/epochs.h"

namespace hilbert_ring::server {

// Outputs of an epoch, by its tokens. Thread-safe.
class EpochBuffer {
 public:
  explicit EpochBuffer(const Epochs& epochs);

  // Rows of another execution replace earlier ones.
  absl::Status Place(const v1::OutputChunk& chunk, std::string_view payload);

  // Rows of OUT or LSE, once no job places rows.
  std::string_view At(v1::Tensor tensor, int64_t first_row, int64_t rows) const;

  int64_t row_bytes(v1::Tensor tensor) const;
  bool has_lse() const { return lse_row_bytes_ > 0; }
  std::shared_ptr<const void> owner() const { return bytes_; }

 private:
  int64_t OffsetOf(v1::Tensor tensor, int64_t row) const {
    return (tensor == v1::TENSOR_OUT ? 0 : most_rows_ * out_row_bytes_) + row * row_bytes(tensor);
  }

  const int64_t most_rows_, out_row_bytes_, lse_row_bytes_;
  // [most_rows, out_row_bytes], [most_rows, lse_row_bytes]; messages in the transport share it.
  const std::shared_ptr<std::byte[]> bytes_;
  Mutex placing_;  // serializes the job's threads
};

class EpochOutputs {
 public:
  EpochOutputs(const Epochs& epochs, JobClient& client);  // both outlive it

  // Returns a free buffer. Errors: the stop's reason.
  absl::StatusOr<EpochBuffer*> Await(const JobStop& stop);

  void Leave(EpochBuffer& buffer, const v1::Epoch& epoch);

  void End();

  absl::Status Send(const JobStop& stop);

  int64_t bytes_sent() const;

 private:
  struct Leaving {
    EpochBuffer* buffer;
    v1::Epoch epoch;
  };
  absl::Status SendRows(const Leaving& leaving, const JobStop& stop);
  absl::Status SendChunk(const Leaving& leaving, v1::Tensor tensor, int64_t first_row, int64_t rows,
                         const JobStop& stop);

  JobClient& client_;
  std::array<EpochBuffer, 2> buffers_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<EpochBuffer*> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<Leaving> leaving_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t bytes_sent_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hilbert_ring::server
