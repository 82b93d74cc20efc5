#include "server/stream/epoch_outputs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/tensor.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

absl::Status Misshapen(const v1::OutputChunk& chunk) {
  return absl::InternalError(absl::StrCat(wire::TensorName(chunk.tensor()), ": ", chunk.rows(),
                                          " rows of an output do not lie in their epoch"));
}

}  // namespace

EpochBuffer::EpochBuffer(const Epochs& epochs)
    : most_rows_(epochs.most_tokens()),
      out_row_bytes_(RowSizes(epochs.SpecOf(1))[TensorKind::kOut]),
      lse_row_bytes_(epochs.output_row_bytes() - out_row_bytes_),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(most_rows_ * epochs.output_row_bytes())) {}

int64_t EpochBuffer::row_bytes(v1::Tensor tensor) const {
  return tensor == v1::TENSOR_OUT ? out_row_bytes_ : tensor == v1::TENSOR_LSE ? lse_row_bytes_ : 0;
}

std::string_view EpochBuffer::At(v1::Tensor tensor, int64_t first_row, int64_t rows) const {
  return {reinterpret_cast<const char*>(bytes_.get()) + OffsetOf(tensor, first_row),
          static_cast<size_t>(rows * row_bytes(tensor))};
}

absl::Status EpochBuffer::Place(const v1::OutputChunk& chunk, std::string_view payload) {
  const int64_t of_row = row_bytes(chunk.tensor());
  const bool ranged = chunk.tokens().empty();
  if (of_row == 0 || chunk.rows() < 0 || chunk.rows() > most_rows_ ||
      std::ssize(payload) != chunk.rows() * of_row ||
      (!ranged && chunk.tokens_size() != chunk.rows())) {
    return Misshapen(chunk);
  }
  const auto inside = [this](int64_t token, int64_t rows) {
    return token >= 0 && token <= most_rows_ - rows;
  };
  const auto put = [&](int64_t token, std::string_view rows) {
    std::memcpy(bytes_.get() + OffsetOf(chunk.tensor(), token), rows.data(), rows.size());
  };
  const MutexLock lock(placing_);
  if (ranged) {
    if (!inside(chunk.first_token(), chunk.rows())) return Misshapen(chunk);
    put(chunk.first_token(), payload);
    return absl::OkStatus();
  }
  for (const int64_t token : chunk.tokens()) {
    if (!inside(token, 1)) return Misshapen(chunk);
    put(token, payload.substr(0, of_row));
    payload.remove_prefix(of_row);
  }
  return absl::OkStatus();
}

EpochOutputs::EpochOutputs(const Epochs& epochs, JobClient& client)
    : client_(client), buffers_{EpochBuffer(epochs), EpochBuffer(epochs)} {
  for (EpochBuffer& buffer : buffers_) free_.push_back(&buffer);
}

absl::StatusOr<EpochBuffer*> EpochOutputs::Await(const JobStop& stop) {
  MutexLock lock(mutex_);
  changed_.wait(lock, stop.token(),
                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !free_.empty(); });
  RETURN_IF_ERROR(stop.why());
  EpochBuffer* const buffer = free_.front();
  free_.pop_front();
  return buffer;
}

void EpochOutputs::Leave(EpochBuffer& buffer, const v1::Epoch& epoch) {
  const MutexLock lock(mutex_);
  leaving_.push_back({&buffer, epoch});
  changed_.notify_all();
}

void EpochOutputs::End() {
  const MutexLock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

int64_t EpochOutputs::bytes_sent() const {
  const MutexLock lock(mutex_);
  return bytes_sent_;
}

absl::Status EpochOutputs::Send(const JobStop& stop) {
  while (true) {
    Leaving next{};
    {
      MutexLock lock(mutex_);
      changed_.wait(lock, stop.token(), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !leaving_.empty() || ended_;
      });
      RETURN_IF_ERROR(stop.why());
      if (leaving_.empty()) return absl::OkStatus();
      next = std::move(leaving_.front());
      leaving_.pop_front();
    }
    RETURN_IF_ERROR(SendRows(next, stop));
    const MutexLock lock(mutex_);
    free_.push_back(next.buffer);
    changed_.notify_all();
  }
}

absl::Status EpochOutputs::SendRows(const Leaving& leaving, const JobStop& stop) {
  const EpochBuffer& buffer = *leaving.buffer;
  const int64_t tokens = leaving.epoch.report().tokens();
  const int64_t rows_of_chunk =
      std::max<int64_t>(1, kStreamChunkBytes / buffer.row_bytes(v1::TENSOR_OUT));
  for (int64_t row = 0; row < tokens; row += rows_of_chunk) {
    const int64_t rows = std::min(rows_of_chunk, tokens - row);
    RETURN_IF_ERROR(SendChunk(leaving, v1::TENSOR_OUT, row, rows, stop));
    if (!buffer.has_lse()) continue;
    RETURN_IF_ERROR(SendChunk(leaving, v1::TENSOR_LSE, row, rows, stop));
  }
  v1::AttendResponse response;
  *response.mutable_epoch() = leaving.epoch;
  RETURN_IF_ERROR(client_.Write(response, stop));
  return client_.AwaitTaken(stop);  // the buffer is free then
}

absl::Status EpochOutputs::SendChunk(const Leaving& leaving, v1::Tensor tensor, int64_t first_row,
                                     int64_t rows, const JobStop& stop) {
  const EpochBuffer& buffer = *leaving.buffer;
  const std::string_view payload = buffer.At(tensor, first_row, rows);
  v1::OutputChunk chunk;
  chunk.set_tensor(tensor);
  chunk.set_first_token(leaving.epoch.first_token() + first_row);
  chunk.set_rows(rows);
  chunk.set_crc32c(wire::Crc32c(payload));
  RETURN_IF_ERROR(
      client_.Write(chunk, payload, buffer.owner(), kAnyPatience, stop, JobClient::SendMode::kNow)
          .status());
  const MutexLock lock(mutex_);
  bytes_sent_ += static_cast<int64_t>(payload.size());
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
