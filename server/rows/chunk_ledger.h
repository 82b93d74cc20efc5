// Which rows of which tensor have come, and whether a chunk may come now. Pure.
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

// Whether a payload's checksum is to be looked at: rows that lie in this process were, as they
// came.
enum class Checksum { kToCheck, kChecked };

class ChunkLedger {
 public:
  // Scattered ranges of a tensor that are remembered at once: 24 MiB.
  static constexpr size_t kMaxFragments = size_t{1} << 19;

  explicit ChunkLedger(const JobShape& shape);

  // Checks a chunk, whose payload lies beside it, and notes its rows. CHUNK_MISSHAPEN for a tensor
  // that the job does not take, rows before all of COORDS, past the end, that came before, or in
  // too many ranges, and for a payload that is not rows x row bytes; CHECKSUM_MISMATCH.
  absl::Status Accept(const v1::Chunk& chunk, const wire::Payload& payload,
                      Checksum checksum = Checksum::kToCheck);

  bool Complete(v1::Tensor tensor) const;  // true of a tensor that the job does not take
  bool Complete() const;

  // Rows of a tensor that the job takes.
  const RowSet& Rows(v1::Tensor tensor) const { return tensors_.at(tensor).rows; }

  // Rows [begin, end) are gone: they may, and must, come again.
  void Forget(v1::Tensor tensor, int64_t begin, int64_t end);

  // Of the rows of all tensors, those that have come.
  double fraction() const;

  // Unless every row has come, naming tensor and first rows: INVALID_ARGUMENT (CHUNK_MISSING), or
  // ABORTED (ROWS_LOST) where rows came, were forgotten, and have not come again.
  absl::Status CheckComplete() const;

 private:
  struct Taken {
    RowSet rows;  // that have come
    int64_t row_bytes;
  };
  static absl::Status CheckRows(const v1::Chunk& chunk, int64_t bytes, const Taken& tensor);
  std::string Names() const;

  std::map<v1::Tensor, Taken> tensors_;  // that the job takes
  std::map<v1::Tensor, RowSet> gone_;    // forgotten, and not come again
};

}  // namespace hilbert_ring::server
