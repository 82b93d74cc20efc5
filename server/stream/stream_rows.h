// Rows of a stream between its client and its epochs, in memory of a fixed size: those of the epoch
// that is computed, which stay until it is done, and those of the next one, which come meanwhile.
//
//   rows.Accept(chunk, payload, stop);              // the receiver: waits for room
//   rows.End();                                     // it has closed its side
//   auto epoch = rows.AwaitEpoch(stop);             // the epochs' thread: one after the other
//   rows.At(TensorKind::kQ, epoch->begin, count);   // any number of times, until
//   rows.Release(*epoch);
//
// Rows of each tensor come in order. A tensor may be as many rows ahead of the others as an epoch
// has: so there is always room for what the epoch that comes still lacks.
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

// Accept and End: by one thread. All else by another.
class StreamRows {
 public:
  // epochs outlives it.
  explicit StreamRows(const Epochs& epochs);

  // Checks a chunk, whose payload lies beside it, and copies its rows. CHUNK_MISSHAPEN,
  // CHECKSUM_MISMATCH, or the stop's reason if the stop is requested while there is no room.
  absl::Status Accept(const v1::Chunk& chunk, const wire::Payload& payload, const JobStop& stop);

  // Nothing more comes. INVALID_ARGUMENT (CHUNK_MISSING) where one tensor has more rows than
  // another.
  absl::Status End();

  // The rows of the next epoch, once they are there; none of an ended stream's last one: begin is
  // its end then. Errors: the stop's reason.
  absl::StatusOr<RowSpan> AwaitEpoch(const JobStop& stop);

  // Rows of the epoch that was awaited last, where they lie.
  wire::Payload At(TensorKind kind, int64_t first_row, int64_t rows) const;

  int64_t widest_row_bytes() const;

  // They may make room for others.
  void Release(const RowSpan& epoch);

 private:
  struct Tensor {
    int64_t row_bytes = 0;
    // [held_rows, row_bytes]: row i lies at i modulo held_rows. Pages that no row was written to
    // take no memory.
    std::unique_ptr<std::byte[]> bytes;
    int64_t come = 0;  // rows, so far; its writer alone changes it
  };

  absl::Status Check(const v1::Chunk& chunk, const wire::Payload& payload) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of all tensors.
  int64_t Come() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Epochs& epochs_;
  const int64_t held_rows_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::array<Tensor, std::size(kStreamed)> tensors_;  // `come` is guarded by mutex_
  int64_t released_ ABSL_GUARDED_BY(mutex_) = 0;      // rows before it have made room
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace hilbert_ring::server
