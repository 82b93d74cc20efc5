#include "client/cpp/job_request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {

const InputTensor* JobTensors::Find(v1::Tensor tensor) const {
  for (const std::vector<InputTensor>* inputs : {&ahead, &bands}) {
    const auto found = std::ranges::find(*inputs, tensor, &InputTensor::tensor);
    if (found != inputs->end()) return &*found;
  }
  return nullptr;
}

int64_t JobTensors::input_bytes() const {
  int64_t bytes = 0;
  for (const std::vector<InputTensor>* inputs : {&ahead, &bands}) {
    for (const InputTensor& input : *inputs) bytes += input.rows * input.row_bytes;
  }
  return bytes;
}

const InputTensor& JobTensors::Widest() const {
  return *std::ranges::max_element(bands, {}, &InputTensor::row_bytes);
}

absl::Status CheckSize(const std::string& name, int64_t actual, int64_t expected) {
  if (actual == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": has ", actual, " bytes, must have ", expected));
}

JobRequest InFiles(JobRequest request, const std::vector<v1::TensorFile>& files) {
  request.open.mutable_files()->Assign(files.begin(), files.end());
  request.tensors.ahead.clear();
  request.tensors.bands.clear();
  for (const v1::TensorFile& file : files) {
    if (file.tensor() == v1::TENSOR_LSE) request.open.set_want_lse(true);
    std::erase_if(request.tensors.outputs,
                  [&file](const OutputTensor& output) { return output.tensor == file.tensor(); });
  }
  return request;
}

}  // namespace hilbert_ring::client
