// Inputs and outputs of a job (attention or an encoder), tensor by tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Input rows. They are not copied and must outlive the call.
struct InputTensor {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  std::span<const std::byte> bytes;  // [rows, row_bytes]; empty if `read` is given
  // Fills [rows, row_bytes] from first_row on, called as AttendInputs::coordinates.
  std::function<void(int64_t first_row, std::span<std::byte> to)> read;
  DataType type = DataType::kFloat32;  // unless coordinates
  std::vector<int64_t> shape;          // its first axis is rows
};

struct OutputTensor {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  DataType type = DataType::kFloat32;
  std::span<std::byte> data;  // [rows, row_bytes]
  std::vector<int64_t> shape;
};

struct JobTensors {
  std::vector<InputTensor> ahead;     // each sent whole, before the bands
  std::vector<InputTensor> bands;     // all have as many rows; rows of a band travel together
  std::vector<OutputTensor> outputs;  // all are wanted

  // Called as AttendInputs::sent, with any input; may be empty.
  std::function<void(v1::Tensor tensor, int64_t begin, int64_t end)> sent;

  const InputTensor* Find(v1::Tensor tensor) const;

  int64_t input_bytes() const;  // sum of all payloads
  const InputTensor& Widest()
      const;  // the band tensor with the longest row, which bounds a chunk from below
};

}  // namespace hilbert_ring::client
