// What an attention job sends, as its caller has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
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

}  // namespace hilbert_ring::client
