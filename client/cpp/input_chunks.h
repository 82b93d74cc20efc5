// A job's input, cut into the chunks in which it is sent: what goes ahead (coordinates), then the
// others by bands of rows, so that the rows of a token travel together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/job_tensors.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

class InputChunks {
 public:
  // Payloads of at most max_payload_bytes. `tensors` must outlive the object.
  InputChunks(const JobTensors& tensors, int64_t max_payload_bytes);

  // OUT_OF_RANGE: a row that is longer than a payload may be.
  absl::Status Check() const;

  // The next chunk, its CRC32C included, without its payload, which lies in the tensor (or,
  // where that is read, here until the next call); false after the last.
  [[nodiscard]] bool Next(v1::Chunk& chunk, std::string_view& payload);

  // Rows that one chunk of a tensor holds at most.
  int64_t RowsPerChunk(const InputTensor& input) const;

  // Any rows of a tensor, RowsPerChunk at most, as one chunk; as of Next otherwise, which goes on
  // where it was.
  void Cut(const InputTensor& input, int64_t first_row, int64_t rows, v1::Chunk& chunk,
           std::string_view& payload);

 private:
  const JobTensors& tensors_;
  const int64_t max_payload_bytes_;
  int64_t band_rows_ = 0;
  size_t ahead_ = 0;             // of those that go ahead, the one that is being sent
  int64_t ahead_row_ = 0;        // of it
  int64_t band_ = 0;             // first row of the band that is being sent
  size_t tensor_ = 0;            // of it
  std::vector<std::byte> read_;  // of the chunk
};

}  // namespace hilbert_ring::client
