// Rows of a stream between its client and its epochs, in memory of fixed size: rows of the epoch
// that is computed, until it is done, and of the next.
//
//   rows.Accept(chunk, payload, stop);              // the receiver: waits for room
//   rows.End();                                     // the client has closed its side
//   auto epoch = rows.AwaitEpoch(stop);             // the epochs' thread
//   rows.At(TensorKind::kQ, epoch->begin, count);   // any number of times
//   rows.Release(*epoch);
//
// Rows of a tensor come in order, at most an epoch ahead of the other tensors: so there is always
// room for the rows that the next epoch lacks.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/spec/tensor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/process/job_stop.h"
#include "server/shard/row_set.h"
#include "server/stream/epochs.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

inline constexpr TensorKind kStreamed[] = {TensorKind::kQ, TensorKind::kK, TensorKind::kV};

class StreamRows {  // the receiver calls Accept and End, the epochs' thread all else
 public:
  explicit StreamRows(const Epochs& epochs);

  // Checks a chunk and copies its payload. CHUNK_MISSHAPEN, CHECKSUM_MISMATCH, or the stop's reason
  // while there is no room.
  absl::Status Accept(const v1::Chunk& chunk, const wire::Payload& payload, const JobStop& stop);

  absl::Status End();  // INVALID_ARGUMENT (CHUNK_MISSING) if one tensor has more rows than another

  // The next epoch's rows, once they are there; empty after the last. Errors: the stop's reason.
  absl::StatusOr<RowSpan> AwaitEpoch(const JobStop& stop);

  // Rows of the last awaited epoch, in place.
  wire::Payload At(TensorKind kind, int64_t first_row, int64_t rows) const;

  int64_t widest_row_bytes() const;

  void Release(const RowSpan& epoch);

 private:
  struct Tensor {
    int64_t row_bytes = 0;
    // [held_rows, row_bytes]: row i has place i modulo held_rows. Unwritten pages take no memory.
    std::unique_ptr<std::byte[]> bytes;
    int64_t come = 0;  // changed by its writer alone
  };

  absl::Status Check(const v1::Chunk& chunk, const wire::Payload& payload) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t Come() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Epochs& epochs_;
  const int64_t held_rows_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::array<Tensor, std::size(kStreamed)> tensors_;  // `come` is guarded by mutex_
  int64_t released_ ABSL_GUARDED_BY(mutex_) = 0;      // rows before it made room
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hilbert_ring::server
