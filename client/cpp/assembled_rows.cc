#include "client/cpp/assembled_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/errors.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/finite_rows.h"

namespace hilbert_ring::client {
AssembledRows::AssembledRows(const OutputTensor& output)
    : tensor_(output.tensor),
      tokens_(output.rows),
      row_bytes_(output.row_bytes),
      type_(output.type),
      data_(output.data),
      placed_(static_cast<size_t>(output.rows)) {}

absl::Status AssembledRows::Place(const v1::OutputChunk& chunk, const wire::Payload& payload) {
  const std::string name = wire::TensorName(tensor_);
  const int64_t rows = chunk.rows();
  const int listed = chunk.tokens_size();
  if (rows < 1 || rows > tokens_ || payload.bytes() != rows * row_bytes_ ||
      (listed != 0 && listed != rows)) {
    return ProtocolError(absl::StrCat(
        name, ": a chunk of ", rows, " rows, ", listed, " of listed tokens, in ", payload.bytes(),
        " bytes, expected at most ", tokens_, " rows of ", row_bytes_, " bytes each"));
  }
  const uint32_t crc = payload.Crc32c();
  if (crc != chunk.crc32c()) {
    return absl::DataLossError(absl::StrFormat(
        "%s chunk from the service, first token %d: CRC32C of the payload is %#010x, "
        "must be %#010x",
        name, listed > 0 ? chunk.tokens(0) : chunk.first_token(), crc, chunk.crc32c()));
  }
  wire::PayloadReader reader(payload);
  if (listed == 0) return PlaceRange(chunk.first_token(), rows, reader);
  for (int64_t i = 0; i < rows; ++i) {
    RETURN_IF_ERROR(PlaceRange(chunk.tokens(static_cast<int>(i)), 1, reader));
  }
  return absl::OkStatus();
}

absl::Status AssembledRows::PlaceRange(int64_t first_token, int64_t rows,
                                       wire::PayloadReader& payload) {
  if (first_token < 0 || first_token > tokens_ - rows) {
    return ProtocolError(absl::StrCat(wire::TensorName(tensor_), ": ", rows, " rows from token ",
                                      first_token, " on, of ", tokens_));
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

bool AssembledRows::Finite(int64_t token) const {
  return wire::IsFinite(type_, data_.data() + token * row_bytes_, row_bytes_);
}

absl::Status AssembledRows::CheckComplete() const {
  if (rows_placed_ == tokens_) return absl::OkStatus();
  const int64_t first = std::find(placed_.begin(), placed_.end(), false) - placed_.begin();
  return absl::DataLossError(absl::StrCat(wire::TensorName(tensor_), ": the service omitted ",
                                          tokens_ - rows_placed_, " of ", tokens_,
                                          " rows, the first for token ", first));
}

}  // namespace hilbert_ring::client
