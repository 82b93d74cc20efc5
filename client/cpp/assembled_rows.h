// Places the rows of one output tensor as they arrive, in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/job_request.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "wire/payload.h"

namespace hilbert_ring::client {

// Used by one thread.
class AssembledRows {
 public:
  explicit AssembledRows(const OutputTensor& output);

  // Checks a chunk against its separate payload, and copies its rows to their tokens. DATA_LOSS:
  // the checksum does not match, or a row came twice. INTERNAL: sizes contradict each other, or a
  // token is outside the job.
  absl::Status Place(const v1::OutputChunk& chunk, const wire::Payload& payload);

  // DATA_LOSS, with the number of missing rows and the first.
  absl::Status CheckComplete() const;

  int64_t rows_placed() const { return rows_placed_; }

  // Placed rows that have a NaN or an infinity; the first of them by its token.
  int64_t rows_not_finite() const { return rows_not_finite_; }
  int64_t first_not_finite() const { return first_not_finite_; }

 private:
  bool Finite(int64_t token) const;
  absl::Status PlaceRange(int64_t first_token, int64_t rows, wire::PayloadReader& payload);

  const v1::Tensor tensor_;
  const int64_t tokens_;
  const int64_t row_bytes_;
  const DataType type_;
  const std::span<std::byte> data_;
  std::vector<bool> placed_;
  int64_t rows_placed_ = 0;
  int64_t rows_not_finite_ = 0;
  int64_t first_not_finite_ = 0;
};

}  // namespace hilbert_ring::client
