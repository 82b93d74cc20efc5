// What a job sends and what comes back, tensor by tensor, whichever job it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Rows that the client sends. They are not copied: what they lie in outlives the call.
struct InputTensor {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  std::span<const std::byte> bytes;  // [rows, row_bytes]; empty where `read` is given
  // Fills [rows, row_bytes] from first_row on. Called by one thread at a time, in order of rows;
  // then again, for any rows, when the service asks for them or the job is tried again.
  std::function<void(int64_t first_row, std::span<std::byte> to)> read;
  DataType type = DataType::kFloat32;  // but of coordinates
  std::vector<int64_t> shape;          // whose first axis is rows
};

// Where rows that come back are put.
struct OutputTensor {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  DataType type = DataType::kFloat32;
  std::span<std::byte> data;  // [rows, row_bytes]
  std::vector<int64_t> shape;
};

struct JobTensors {
  std::vector<InputTensor> ahead;     // each whole, before all others
  std::vector<InputTensor> bands;     // of as many rows each: those of a band travel together
  std::vector<OutputTensor> outputs;  // all of them are wanted

  // Told, if set, that bytes [begin, end) of an input were sent. They are read, sent and told again
  // when the service asks for them or the job is tried again. Called by the sending thread.
  std::function<void(v1::Tensor tensor, int64_t begin, int64_t end)> sent;

  // The input that is sent as `tensor`; null: none is.
  const InputTensor* Find(v1::Tensor tensor) const;

  int64_t input_bytes() const;        // of all payloads
  const InputTensor& Widest() const;  // of the bands: no chunk can be shorter than its row
};

}  // namespace hilbert_ring::client
