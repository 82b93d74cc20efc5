#include "client/cpp/attend.h"

#include <cstring>
#include <utility>
#include <vector>

#include "client/cpp/connector.h"
#include "client/cpp/conversation.h"
#include "client/cpp/job_request.h"
#include "client/cpp/job_shape.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/bias_coordinates.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

constexpr char kMethod[] = "/hilbert_ring.v1.AttentionService/Attend";

bool HasCoordinates(const JobSpec& spec) {
  return spec.ordering && spec.ordering->coordinate_axes > 0;
}

InputTensor Input(const JobSpec& spec, v1::Tensor tensor, std::span<const std::byte> bytes) {
  return {.tensor = tensor,
          .rows = tensor == v1::TENSOR_Q ? spec.tokens : KeyTokens(spec),
          .row_bytes = wire::TensorRowBytes(spec, tensor),
          .bytes = bytes,
          .type = spec.dtype,
          .shape = TensorShape(spec, tensor)};
}

OutputTensor Output(const JobSpec& spec, v1::Tensor tensor, DataType type,
                    std::span<std::byte> data) {
  return {.tensor = tensor,
          .rows = spec.tokens,
          .row_bytes = wire::TensorRowBytes(spec, tensor),
          .type = type,
          .data = data,
          .shape = TensorShape(spec, tensor)};
}

std::vector<OutputTensor> OutputsOf(const JobSpec& spec, const AttendOutputs& outputs) {
  std::vector<OutputTensor> tensors = {Output(spec, v1::TENSOR_OUT, spec.dtype, outputs.out)};
  if (!outputs.lse.empty()) {
    tensors.push_back(Output(spec, v1::TENSOR_LSE, DataType::kFloat32, outputs.lse));
  }
  return tensors;
}

JobTensors TensorsOf(const AttendInputs& inputs, const AttendOutputs& outputs) {
  const JobSpec& spec = inputs.spec;
  JobTensors tensors;
  if (HasCoordinates(spec)) {
    InputTensor coordinates{.tensor = v1::TENSOR_COORDS,
                            .rows = KeyTokens(spec),
                            .row_bytes = wire::TensorRowBytes(spec, v1::TENSOR_COORDS),
                            .shape = {KeyTokens(spec), spec.ordering->coordinate_axes}};
    coordinates.read = [&inputs](int64_t first_row, std::span<std::byte> to) {
      // Aligned, because each chunk has its own memory.
      inputs.coordinates(first_row,
                         {reinterpret_cast<uint32_t*>(to.data()), to.size() / sizeof(uint32_t)});
    };
    tensors.ahead.push_back(std::move(coordinates));
  }
  if (BiasAxes(spec) > 0) {
    InputTensor coordinates{.tensor = v1::TENSOR_BIAS_COORDS,
                            .rows = KeyTokens(spec),
                            .row_bytes = wire::TensorRowBytes(spec, v1::TENSOR_BIAS_COORDS),
                            .shape = {KeyTokens(spec), BiasAxes(spec)}};
    coordinates.read = [&inputs, axes = BiasAxes(spec)](int64_t first_row,
                                                        std::span<std::byte> to) {
      std::memcpy(to.data(), inputs.bias_coordinates.data() + first_row * axes, to.size());
    };
    tensors.ahead.push_back(std::move(coordinates));
  }
  tensors.bands = {Input(spec, v1::TENSOR_Q, inputs.q), Input(spec, v1::TENSOR_K, inputs.k),
                   Input(spec, v1::TENSOR_V, inputs.v)};
  tensors.outputs = OutputsOf(spec, outputs);
  if (inputs.sent) {
    tensors.sent = [&inputs](v1::Tensor tensor, int64_t begin, int64_t end) {
      const bool ahead = tensor == v1::TENSOR_COORDS || tensor == v1::TENSOR_BIAS_COORDS;
      if (!ahead) inputs.sent(tensor, begin, end);
    };
  }
  return tensors;
}

}  // namespace

absl::Status CheckInputs(const AttendInputs& inputs) {
  RETURN_IF_ERROR(Validate(inputs.spec));
  if (HasCoordinates(inputs.spec) && !inputs.coordinates) {
    return absl::InvalidArgumentError("coords are missing: the ordering needs them");
  }
  const int axes = BiasAxes(inputs.spec);
  RETURN_IF_ERROR(CheckSize(wire::TensorName(v1::TENSOR_BIAS_COORDS),
                            std::ssize(std::as_bytes(inputs.bias_coordinates)),
                            KeyTokens(inputs.spec) * axes * int64_t{sizeof(float)}));
  RETURN_IF_ERROR(CheckBiasCoordinates(inputs.bias_coordinates, axes, 0));
  for (const InputTensor& input : TensorsOf(inputs, {}).bands) {
    RETURN_IF_ERROR(CheckSize(wire::TensorName(input.tensor), std::ssize(input.bytes),
                              input.rows * input.row_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const JobSpec& spec, const AttendOutputs& outputs) {
  for (const OutputTensor& output : OutputsOf(spec, outputs)) {
    RETURN_IF_ERROR(CheckSize(wire::TensorName(output.tensor), std::ssize(output.data),
                              output.rows * output.row_bytes));
  }
  return absl::OkStatus();
}

JobRequest RequestOf(const AttendInputs& inputs, const AttendOutputs& outputs) {
  JobRequest request{
      .method = kMethod, .tensors = TensorsOf(inputs, outputs), .tokens = inputs.spec.tokens};
  *request.open.mutable_spec() = wire::EncodeJobSpec(inputs.spec);
  request.open.set_want_lse(!outputs.lse.empty());
  return request;
}

absl::StatusOr<JobRequest> CheckedRequest(const AttendInputs& inputs,
                                          const AttendOutputs& outputs) {
  RETURN_IF_ERROR(CheckInputs(inputs));
  RETURN_IF_ERROR(CheckOutputs(inputs.spec, outputs));
  return RequestOf(inputs, outputs);
}

absl::StatusOr<v1::Report> Attend(Connector& connector, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options) {
  ASSIGN_OR_RETURN(const JobRequest request, CheckedRequest(inputs, outputs));
  return CallJob(connector, request, options);
}

absl::StatusOr<v1::Report> Attend(const std::string& server, const AttendInputs& inputs,
                                  const AttendOutputs& outputs, const AttendOptions& options) {
  ASSIGN_OR_RETURN(const JobRequest request, CheckedRequest(inputs, outputs));
  return CallJob(server, request, options);
}

absl::StatusOr<v1::Report> Attend(const std::shared_ptr<grpc::Channel>& channel,
                                  const AttendInputs& inputs, const AttendOutputs& outputs,
                                  const AttendOptions& options) {
  Connector connector(channel);
  return Attend(connector, inputs, outputs, options);
}

}  // namespace hilbert_ring::client
