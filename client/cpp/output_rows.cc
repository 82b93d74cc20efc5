#include "client/cpp/output_rows.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

// Whether all bits of the exponent are set in one of the numbers, that lie side by side.
template <typename Word>
bool SomeExponentFull(const std::byte* numbers, int64_t bytes, Word exponent) {
  bool full = false;
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof(Word))) {
    Word number;
    std::memcpy(&number, numbers + at, sizeof(Word));
    full |= (number & exponent) == exponent;
  }
  return full;
}

}  // namespace

OutputRows::OutputRows(v1::Tensor tensor, int64_t tokens, int64_t row_bytes, DataType type,
                       std::span<std::byte> data)
    : tensor_(tensor),
      tokens_(tokens),
      row_bytes_(row_bytes),
      type_(type),
      data_(data),
      placed_(static_cast<size_t>(tokens)) {}

absl::Status OutputRows::Place(const v1::OutputChunk& chunk, const wire::Payload& payload) {
  const std::string name = wire::TensorName(tensor_);
  const int64_t rows = chunk.rows();
  if (rows < 1 || rows > tokens_) {
    return absl::InternalError(absl::StrCat(name, " chunk from the service: has ", rows,
                                            " rows, expected 1 to ", tokens_));
  }
  if (payload.bytes() != rows * row_bytes_) {
    return absl::InternalError(absl::StrCat(name, " chunk from the service: payload of ",
                                            payload.bytes(), " bytes, expected ", rows * row_bytes_,
                                            " for ", rows, " rows"));
  }
  if (chunk.tokens_size() != 0 && chunk.tokens_size() != rows) {
    return absl::InternalError(absl::StrCat(name, " chunk from the service: lists ",
                                            chunk.tokens_size(), " tokens for ", rows, " rows"));
  }
  const uint32_t crc = payload.Crc32c();
  if (crc != chunk.crc32c()) {
    return absl::DataLossError(absl::StrFormat(
        "%s chunk from the service, first token %d: CRC32C of the payload is %#010x, "
        "the chunk says %#010x",
        name, chunk.tokens_size() > 0 ? chunk.tokens(0) : chunk.first_token(), crc,
        chunk.crc32c()));
  }
  wire::PayloadReader reader(payload);
  if (chunk.tokens_size() == 0) return PlaceRange(chunk.first_token(), rows, reader);
  for (int64_t i = 0; i < rows; ++i) {
    RETURN_IF_ERROR(PlaceRange(chunk.tokens(static_cast<int>(i)), 1, reader));
  }
  return absl::OkStatus();
}

absl::Status OutputRows::PlaceRange(int64_t first_token, int64_t rows,
                                    wire::PayloadReader& payload) {
  if (first_token < 0 || first_token > tokens_ - rows) {
    return absl::InternalError(absl::StrCat(wire::TensorName(tensor_),
                                            " chunk from the service: ", rows, " rows from token ",
                                            first_token, " lie outside [0, ", tokens_, ")"));
  }
  for (int64_t token = first_token; token < first_token + rows; ++token) {
    if (placed_[static_cast<size_t>(token)]) {
      return absl::DataLossError(absl::StrCat(wire::TensorName(tensor_),
                                              " chunk from the service: row of token ", token,
                                              " came twice"));
    }
    placed_[static_cast<size_t>(token)] = true;
  }
  payload.Read(data_.data() + first_token * row_bytes_, rows * row_bytes_);
  rows_placed_ += rows;
  for (int64_t token = first_token; token < first_token + rows; ++token) {
    if (Finite(token)) continue;
    first_not_finite_ = rows_not_finite_ == 0 ? token : std::min(first_not_finite_, token);
    ++rows_not_finite_;
  }
  return absl::OkStatus();
}

bool OutputRows::Finite(int64_t token) const {
  const std::byte* const row = data_.data() + token * row_bytes_;
  switch (type_) {
    case DataType::kFloat16:
      return !SomeExponentFull<uint16_t>(row, row_bytes_, 0x7c00);
    case DataType::kBFloat16:
      return !SomeExponentFull<uint16_t>(row, row_bytes_, 0x7f80);
    case DataType::kFloat32:
      break;
  }
  return !SomeExponentFull<uint32_t>(row, row_bytes_, 0x7f800000);
}

absl::Status OutputRows::CheckComplete() const {
  if (rows_placed_ == tokens_) return absl::OkStatus();
  const int64_t first = std::find(placed_.begin(), placed_.end(), false) - placed_.begin();
  return absl::DataLossError(absl::StrCat(wire::TensorName(tensor_), ": the service left out ",
                                          tokens_ - rows_placed_, " of ", tokens_,
                                          " rows, the first for token ", first));
}

}  // namespace hilbert_ring::client
