// The job of a call (attention or an encoder), with its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "client/cpp/encode.h"
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

struct JobRequest {
  const char* method = nullptr;  // of a service: "/hilbert_ring.v1.AttentionService/Attend"
  v1::Open open;                 // without an attempt's own fields
  JobTensors tensors;
  int64_t tokens = 0;

  bool by_reference() const { return open.files_size() > 0; }
};

// INVALID_ARGUMENT, with the tensor: it has another number of bytes.
absl::Status CheckSize(const std::string& name, int64_t actual, int64_t expected);

// Inputs and outputs must outlive a request. CheckedRequest also checks them, RequestOf does not.
absl::StatusOr<JobRequest> CheckedRequest(const AttendInputs& inputs, const AttendOutputs& outputs);
absl::StatusOr<JobRequest> CheckedRequest(const EncodeInputs& inputs, const EncodeResults& results);
JobRequest RequestOf(const AttendInputs& inputs, const AttendOutputs& outputs);
JobRequest RequestOf(const EncodeInputs& inputs, const EncodeResults& results);

// Returns the same job with all inputs in these files, and every output that has a file. LSE is
// wanted if it has a file.
JobRequest InFiles(JobRequest request, const std::vector<v1::TensorFile>& files);

}  // namespace hilbert_ring::client
