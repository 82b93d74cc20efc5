// A job's input, cut into the chunks in which it is sent: all COORDS first, then Q, K and V by
// bands of tokens, so that the rows of a token travel together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

struct AttendInputs {
  JobSpec spec;
  // Row-major, little-endian, of the spec's dtype. Not copied: they must outlive the call.
  std::span<const std::byte> q;  // [tokens, heads, head_dim]
  std::span<const std::byte> k;  // [tokens, kv_heads, head_dim]
  std::span<const std::byte> v;  // [tokens, kv_heads, value_dim]

  // Fills coordinates [rows, axes] from first_row on. Needed when the ordering has coordinates;
  // called by one thread at a time, in order of rows; then again, for any rows, when the service
  // asks for them or the job is tried again.
  std::function<void(int64_t first_row, std::span<uint32_t> values)> coordinates;

  // Told, if set, that bytes [begin, end) of Q, K or V were sent. They are read, sent and told
  // again when the service asks for them or the job is tried again. Called by the sending thread.
  std::function<void(v1::Tensor tensor, int64_t begin, int64_t end)> sent;
};

// OK when the spec is valid and the tensors have its sizes. INVALID_ARGUMENT or OUT_OF_RANGE,
// naming the field, otherwise.
absl::Status CheckInputs(const AttendInputs& inputs);

// Bytes of all payloads.
int64_t InputBytes(const JobSpec& spec);

// Bytes of the longest row of Q, K and V: no chunk can be shorter.
int64_t LongestInputRowBytes(const JobSpec& spec);

class InputChunks {
 public:
  // Payloads of at most max_payload_bytes. `inputs` must outlive the object.
  InputChunks(const AttendInputs& inputs, int64_t max_payload_bytes);

  // OUT_OF_RANGE: a row that is longer than a payload may be.
  absl::Status Check() const;

  // The next chunk, its CRC32C included, without its payload, which lies in the inputs (or, for
  // coordinates, here until the next call); false after the last.
  [[nodiscard]] bool Next(v1::Chunk& chunk, std::string_view& payload);

  // Rows that one chunk of a tensor holds at most.
  int64_t RowsPerChunk(v1::Tensor tensor) const;

  // Any rows of a tensor, RowsPerChunk at most, as one chunk; as of Next otherwise, which goes on
  // where it was.
  void Cut(v1::Tensor tensor, int64_t first_row, int64_t rows, v1::Chunk& chunk,
           std::string_view& payload);

 private:
  const AttendInputs& inputs_;
  const int64_t max_payload_bytes_;
  int64_t band_rows_ = 0;
  int64_t next_coordinate_row_ = 0;
  int64_t band_ = 0;                   // first row of the band that is being sent
  int tensor_ = 0;                     // of it: Q, K, V
  std::vector<uint32_t> coordinates_;  // of the chunk
};

}  // namespace hilbert_ring::client
