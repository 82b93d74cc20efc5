#include "server/stream/epoch_client.h"

#include <algorithm>
#include <utility>

#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::server {

absl::StatusOr<bool> EpochClient::Read(ClientMessage& message, const JobStop& stop) {
  RETURN_IF_ERROR(stop.why());
  if (!std::exchange(opened_, true)) {
    *message.request.mutable_open() = open_;
    return true;
  }
  if (parts_.rows == nullptr) return false;
  const int64_t tokens = parts_.span.end - parts_.span.begin;
  if (pieces_.empty() && band_ < tokens) {
    const int64_t rows = std::min(RowsOfChunk(), tokens - band_);
    for (const TensorKind tensor : kStreamed) pieces_.push_back({tensor, band_, rows});
    band_ += rows;
  }
  if (pieces_.empty()) return false;
  Piece& piece = pieces_.front();
  const int64_t rows = std::min(RowsOfChunk(), piece.rows);
  message.payload = parts_.rows->At(piece.tensor, parts_.span.begin + piece.first_row, rows);
  v1::Chunk& chunk = *message.request.mutable_chunk();
  chunk.set_tensor(wire::TensorOf(piece.tensor));
  chunk.set_first_row(piece.first_row);
  chunk.set_rows(rows);
  message.checked = true;
  piece.first_row += rows;
  piece.rows -= rows;
  if (piece.rows == 0) pieces_.pop_front();
  return true;
}

int64_t EpochClient::RowsOfChunk() const {
  return std::max<int64_t>(1, kStreamChunkBytes / parts_.rows->widest_row_bytes());
}

absl::Status EpochClient::Write(const v1::AttendResponse& response, const JobStop& stop) {
  RETURN_IF_ERROR(stop.why());
  if (!response.has_resend()) return absl::OkStatus();
  const auto tensor = wire::TensorKindOf(response.resend().tensor());
  for (const v1::Resend::Range& range : response.resend().ranges()) {
    pieces_.push_back({*tensor, range.first_row(), range.rows()});
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> EpochClient::Write(const v1::OutputChunk& chunk, std::string_view payload,
                                        std::shared_ptr<const void> /*owner*/,
                                        Clock::duration /*patience*/, const JobStop& stop,
                                        SendMode /*mode*/) {
  RETURN_IF_ERROR(stop.why());
  RETURN_IF_ERROR(parts_.outputs->Place(chunk, payload));
  return true;
}

}  // namespace hilbert_ring::server
