#include "client/cpp/input_chunks.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
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

void Seal(v1::Tensor tensor, int64_t first_row, int64_t rows, std::string_view payload,
          v1::Chunk& chunk) {
  chunk.set_tensor(tensor);
  chunk.set_first_row(first_row);
  chunk.set_rows(rows);
  chunk.set_crc32c(wire::Crc32c(payload));
}

}  // namespace

absl::Status CheckInputs(const AttendInputs& inputs) {
  if (absl::Status valid = Validate(inputs.spec); !valid.ok()) return valid;
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

bool InputChunks::Next(v1::Chunk& chunk, std::string_view& payload) {
  if (NextCoordinates(chunk, payload)) return true;
  if (band_ >= inputs_.spec.tokens) return false;
  const v1::Tensor tensor = kBandTensors[static_cast<size_t>(tensor_)];
  const int64_t rows = std::min(band_rows_, inputs_.spec.tokens - band_);
  const int64_t row_bytes = wire::TensorRowBytes(inputs_.spec, tensor);
  const std::span<const std::byte> bytes =
      BytesOf(inputs_, tensor)
          .subspan(static_cast<size_t>(band_ * row_bytes), static_cast<size_t>(rows * row_bytes));
  payload = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  Seal(tensor, band_, rows, payload, chunk);
  if (++tensor_ == static_cast<int>(kBandTensors.size())) {
    tensor_ = 0;
    band_ += rows;
  }
  return true;
}

bool InputChunks::NextCoordinates(v1::Chunk& chunk, std::string_view& payload) {
  const int axes = CoordinateAxes(inputs_.spec);
  if (axes == 0 || next_coordinate_row_ >= inputs_.spec.tokens) return false;
  const int64_t row_bytes = axes * static_cast<int64_t>(sizeof(uint32_t));
  const int64_t rows =
      std::min(max_payload_bytes_ / row_bytes, inputs_.spec.tokens - next_coordinate_row_);
  coordinates_.resize(static_cast<size_t>(rows * axes));
  inputs_.coordinates(next_coordinate_row_, coordinates_);
  payload = {reinterpret_cast<const char*>(coordinates_.data()),
             static_cast<size_t>(rows * row_bytes)};
  Seal(v1::TENSOR_COORDS, next_coordinate_row_, rows, payload, chunk);
  next_coordinate_row_ += rows;
  return true;
}

}  // namespace hilbert_ring::client
