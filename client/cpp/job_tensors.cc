#include "client/cpp/job_tensors.h"

#include <algorithm>

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

}  // namespace hilbert_ring::client
