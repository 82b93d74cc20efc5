// Which rows of which tensor have come, and whether a chunk may come now. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// A set of rows of [0, size), as ranges that neither overlap nor touch.
class RowSet {
 public:
  explicit RowSet(int64_t size) : size_(size) {}

  // Adds [begin, end), within [0, size) and not empty; false when some of it is there already, and
  // then nothing changes.
  bool Add(int64_t begin, int64_t end);

  int64_t size() const { return size_; }
  int64_t count() const { return count_; }
  size_t fragments() const { return ranges_.size(); }

  // The first rows that are not there: [begin, end), empty at size() when all are.
  struct Gap {
    int64_t begin = 0, end = 0;
  };
  Gap FirstGap() const;

 private:
  int64_t size_;
  int64_t count_ = 0;
  std::map<int64_t, int64_t> ranges_;  // begin -> end
};

class ChunkLedger {
 public:
  // Scattered ranges of a tensor that are remembered at once: 24 MiB.
  static constexpr size_t kMaxFragments = size_t{1} << 19;

  explicit ChunkLedger(const JobSpec& spec);

  // Checks a chunk, whose payload lies beside it, and takes its rows down. Errors, with a reason:
  // INVALID_ARGUMENT for a tensor that the job does not take (BAD_TENSOR), rows before all of
  // COORDS (COORDS_FIRST), a payload that is too long or not rows x row bytes (CHUNK_MISSHAPEN),
  // rows that came before (CHUNK_OVERLAP); OUT_OF_RANGE past the end (CHUNK_PAST_END) or scattered
  // over too many ranges (CHUNKS_TOO_SCATTERED); DATA_LOSS (CHECKSUM_MISMATCH).
  absl::Status Accept(const v1::Chunk& chunk, const wire::Payload& payload);

  bool Complete(v1::Tensor tensor) const;

  // Of the rows of all tensors, those that have come.
  double fraction() const;

  // INVALID_ARGUMENT (CHUNK_MISSING), naming tensor and first rows, unless every row has come.
  absl::Status CheckComplete() const;

 private:
  absl::Status CheckShape(const v1::Chunk& chunk, int64_t bytes, int64_t row_bytes) const;

  JobSpec spec_;
  std::map<v1::Tensor, RowSet> tensors_;  // that the job takes
};

}  // namespace hilbert_ring::server
