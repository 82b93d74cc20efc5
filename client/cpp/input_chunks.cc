#include "client/cpp/input_chunks.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

constexpr std::array<v1::Tensor, 3> kBandTensors = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};

int CoordinateAxes(const JobSpec& spec) {
  return spec.ordering ? spec.ordering->coordinate_axes : 0;
}

std::span<const std::byte> BytesOf(const AttendInputs& inputs, v1::Tensor tensor) {
  switch (tensor) {
    case v1::TENSOR_Q:
      return inputs.q;
    case v1::TENSOR_K:
      return inputs.k;
    default:
      return inputs.v;
  }
}

}  // namespace

absl::Status CheckInputs(const AttendInputs& inputs) {
  RETURN_IF_ERROR(Validate(inputs.spec));
  for (v1::Tensor tensor : kBandTensors) {
    const int64_t expected = inputs.spec.tokens * wire::TensorRowBytes(inputs.spec, tensor);
    const int64_t actual = static_cast<int64_t>(BytesOf(inputs, tensor).size());
    if (actual != expected) {
      return absl::InvalidArgumentError(absl::StrCat(wire::TensorName(tensor), ": has ", actual,
                                                     " bytes, the spec says ", expected));
    }
  }
  if (CoordinateAxes(inputs.spec) != 0 && !inputs.coordinates) {
    return absl::InvalidArgumentError("ordering: the job needs coordinates and none are given");
  }
  return absl::OkStatus();
}

int64_t InputBytes(const JobSpec& spec) {
  int64_t row_bytes = CoordinateAxes(spec) * static_cast<int64_t>(sizeof(uint32_t));
  for (v1::Tensor tensor : kBandTensors) row_bytes += wire::TensorRowBytes(spec, tensor);
  return row_bytes * spec.tokens;
}

int64_t LongestInputRowBytes(const JobSpec& spec) {
  int64_t longest = 1;
  for (v1::Tensor tensor : kBandTensors) {
    longest = std::max(longest, wire::TensorRowBytes(spec, tensor));
  }
  return longest;
}

InputChunks::InputChunks(const AttendInputs& inputs, int64_t max_payload_bytes)
    : inputs_(inputs),
      max_payload_bytes_(max_payload_bytes),
      band_rows_(max_payload_bytes / LongestInputRowBytes(inputs.spec)) {}

absl::Status InputChunks::Check() const {
  if (band_rows_ >= 1) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "a row of Q, K or V takes ", LongestInputRowBytes(inputs_.spec), " bytes, over the limit of ",
      max_payload_bytes_, " bytes in a chunk; lower heads or head_dim"));
}

int64_t InputChunks::RowsPerChunk(v1::Tensor tensor) const {
  if (tensor != v1::TENSOR_COORDS) return band_rows_;
  return max_payload_bytes_ / wire::TensorRowBytes(inputs_.spec, tensor);
}

bool InputChunks::Next(v1::Chunk& chunk, std::string_view& payload) {
  const int64_t tokens = inputs_.spec.tokens;
  if (CoordinateAxes(inputs_.spec) > 0 && next_coordinate_row_ < tokens) {
    const int64_t rows = std::min(RowsPerChunk(v1::TENSOR_COORDS), tokens - next_coordinate_row_);
    Cut(v1::TENSOR_COORDS, next_coordinate_row_, rows, chunk, payload);
    next_coordinate_row_ += rows;
    return true;
  }
  if (band_ >= tokens) return false;
  const int64_t rows = std::min(band_rows_, tokens - band_);
  Cut(kBandTensors[static_cast<size_t>(tensor_)], band_, rows, chunk, payload);
  if (++tensor_ == static_cast<int>(kBandTensors.size())) {
    tensor_ = 0;
    band_ += rows;
  }
  return true;
}

void InputChunks::Cut(v1::Tensor tensor, int64_t first_row, int64_t rows, v1::Chunk& chunk,
                      std::string_view& payload) {
  const int64_t row_bytes = wire::TensorRowBytes(inputs_.spec, tensor);
  std::span<const std::byte> bytes;
  if (tensor == v1::TENSOR_COORDS) {
    coordinates_.resize(static_cast<size_t>(rows * CoordinateAxes(inputs_.spec)));
    inputs_.coordinates(first_row, coordinates_);
    bytes = std::as_bytes(std::span(coordinates_));
  } else {
    bytes = BytesOf(inputs_, tensor)
                .subspan(static_cast<size_t>(first_row * row_bytes),
                         static_cast<size_t>(rows * row_bytes));
  }
  payload = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  chunk.set_tensor(tensor);
  chunk.set_first_row(first_row);
  chunk.set_rows(rows);
  chunk.set_crc32c(wire::Crc32c(payload));
}

}  // namespace hilbert_ring::client
