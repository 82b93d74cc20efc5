#include "client/cpp/input_chunks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::client {

InputChunks::InputChunks(const JobTensors& tensors, int64_t max_payload_bytes)
    : tensors_(tensors),
      max_payload_bytes_(max_payload_bytes),
      band_rows_(max_payload_bytes / tensors.Widest().row_bytes) {}

absl::Status InputChunks::Check() const {
  if (band_rows_ >= 1) return absl::OkStatus();
  const InputTensor& widest = tensors_.Widest();
  return absl::OutOfRangeError(absl::StrCat("a row of ", wire::TensorName(widest.tensor), " takes ",
                                            widest.row_bytes, " bytes, over the limit of ",
                                            max_payload_bytes_, " bytes in a chunk"));
}

int64_t InputChunks::RowsPerChunk(const InputTensor& input) const {
  const bool band =
      std::ranges::find(tensors_.bands, input.tensor, &InputTensor::tensor) != tensors_.bands.end();
  return band ? band_rows_ : max_payload_bytes_ / input.row_bytes;
}

bool InputChunks::Next(v1::Chunk& chunk, std::string_view& payload) {
  while (ahead_ < tensors_.ahead.size()) {
    const InputTensor& input = tensors_.ahead[ahead_];
    const int64_t rows = std::min(RowsPerChunk(input), input.rows - ahead_row_);
    if (rows > 0) {
      Cut(input, ahead_row_, rows, chunk, payload);
      ahead_row_ += rows;
      return true;
    }
    ++ahead_;
    ahead_row_ = 0;
  }
  const int64_t end = std::ranges::max(tensors_.bands, {}, &InputTensor::rows).rows;
  while (band_ < end) {
    const InputTensor& input = tensors_.bands[tensor_];
    const int64_t first = band_, rows = std::min(band_rows_, input.rows - band_);
    if (++tensor_ == tensors_.bands.size()) {
      tensor_ = 0;
      band_ += band_rows_;
    }
    if (rows <= 0) continue;  // a shorter tensor has ended
    Cut(input, first, rows, chunk, payload);
    return true;
  }
  return false;
}

void InputChunks::Cut(const InputTensor& input, int64_t first_row, int64_t rows, v1::Chunk& chunk,
                      std::string_view& payload) {
  const auto bytes = static_cast<size_t>(rows * input.row_bytes);
  if (input.read) {
    read_.resize(bytes);
    input.read(first_row, read_);
  }
  const std::byte* const from =
      input.read ? read_.data() : input.bytes.data() + first_row * input.row_bytes;
  payload = {reinterpret_cast<const char*>(from), bytes};
  chunk.set_tensor(input.tensor);
  chunk.set_first_row(first_row);
  chunk.set_rows(rows);
  chunk.set_crc32c(wire::Crc32c(payload));
}

}  // namespace hilbert_ring::client
