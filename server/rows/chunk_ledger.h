// The rows of each tensor that have come, and checks of chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/shard/job_shape.h"
#include "server/shard/row_set.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// kChecked: rows were checked when they came to this process.
enum class Checksum { kToCheck, kChecked };

// Returns whether the tensor's rows stay in this process, and come before those for workers.
inline bool ComesAhead(v1::Tensor tensor) {
  return tensor == v1::TENSOR_COORDS || tensor == v1::TENSOR_BIAS_COORDS;
}

class ChunkLedger {
 public:
  static constexpr size_t kMaxFragments = size_t{1} << 19;  // ranges of a tensor: 24 MiB

  explicit ChunkLedger(const JobShape& shape);

  // Checks a chunk and notes its rows. CHUNK_MISSHAPEN for rows that are unknown, before COORDS and
  // BIAS_COORDS, repeated, in too many ranges or of another size; CHECKSUM_MISMATCH.
  absl::Status Accept(const v1::Chunk& chunk, const wire::Payload& payload,
                      Checksum checksum = Checksum::kToCheck);

  bool Complete(v1::Tensor tensor) const;  // true for an unknown tensor
  bool Complete() const;

  const RowSet& Rows(v1::Tensor tensor) const { return tensors_.at(tensor).rows; }

  // Rows [begin, end) are lost, and must come again.
  void Forget(v1::Tensor tensor, int64_t begin, int64_t end);

  double fraction() const;

  // INVALID_ARGUMENT (CHUNK_MISSING) for missing rows, ABORTED (ROWS_LOST) if forgotten rows did
  // not come again.
  absl::Status CheckComplete() const;

 private:
  struct Taken {
    RowSet rows;  // that have come
    int64_t row_bytes;
  };
  static absl::Status CheckRows(const v1::Chunk& chunk, int64_t bytes, const Taken& tensor);
  std::string Names() const;

  std::map<v1::Tensor, Taken> tensors_;  // of the job
  std::map<v1::Tensor, RowSet> gone_;    // forgotten rows that have not come again
};

}  // namespace hilbert_ring::server
