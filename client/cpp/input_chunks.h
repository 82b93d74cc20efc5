// Cuts a job's input into chunks. Coordinates go ahead; the other tensors follow by bands of rows,
// so that the rows of a token travel together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/job_request.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

class InputChunks {
 public:
  // `tensors` must outlive the object.
  InputChunks(const JobTensors& tensors, int64_t max_payload_bytes);

  // OUT_OF_RANGE: a row is longer than a payload may be.
  absl::Status Check() const;

  // Returns the next chunk with its CRC32C, and separately its payload; false after the last. The
  // payload lies in the tensor, or here until the next call if the tensor has `read`.
  [[nodiscard]] bool Next(v1::Chunk& chunk, std::string_view& payload);

  int64_t RowsPerChunk(const InputTensor& input) const;

  // Returns any rows of a tensor, at most RowsPerChunk, as one chunk, like Next. Does not change
  // the position of Next.
  void Cut(const InputTensor& input, int64_t first_row, int64_t rows, v1::Chunk& chunk,
           std::string_view& payload);

 private:
  const JobTensors& tensors_;
  const int64_t max_payload_bytes_;
  int64_t band_rows_ = 0;
  size_t ahead_ = 0;       // index of the current tensor that goes ahead
  int64_t ahead_row_ = 0;  // its next row
  int64_t band_ = 0;       // first row of the current band
  size_t tensor_ = 0;      // index of its next tensor
  std::vector<std::byte> read_;
};

}  // namespace hilbert_ring::client
