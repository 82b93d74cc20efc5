#include "server/stream/stream_rows.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

int IndexOf(v1::Tensor tensor) {
  for (size_t i = 0; i < std::size(kStreamed); ++i) {
    if (wire::TensorOf(kStreamed[i]) == tensor) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

StreamRows::StreamRows(const Epochs& epochs) : epochs_(epochs), held_rows_(epochs.held_rows()) {
  const RowSizes rows(epochs.SpecOf(1));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].row_bytes = rows[kStreamed[i]];
    tensors_[i].bytes =
        std::make_unique_for_overwrite<std::byte[]>(held_rows_ * tensors_[i].row_bytes);
  }
}

int64_t StreamRows::Come() const {
  return std::ranges::min_element(tensors_, {}, &Tensor::come)->come;
}

absl::Status StreamRows::Check(const v1::Chunk& chunk, const wire::Payload& payload) const {
  const std::string name = wire::TensorName(chunk.tensor());
  const int index = IndexOf(chunk.tensor());
  if (index < 0) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat("tensor of a chunk is ", name, ", a stream takes Q, K, V"));
  }
  const Tensor& tensor = tensors_[index];
  if (chunk.rows() < 1 || chunk.rows() > wire::kMaxPayloadBytes / tensor.row_bytes) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": rows is ", chunk.rows(), ", must be 1 to ",
                                      wire::kMaxPayloadBytes / tensor.row_bytes));
  }
  if (payload.bytes() != chunk.rows() * tensor.row_bytes) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": payload has ", payload.bytes(), " bytes, but ",
                                      chunk.rows(), " rows of ", tensor.row_bytes, " bytes are ",
                                      chunk.rows() * tensor.row_bytes));
  }
  if (chunk.first_row() != tensor.come) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": first_row is ", chunk.first_row(),
                                      ", the next row of the stream is ", tensor.come));
  }
  const int64_t ahead = tensor.come + chunk.rows() - Come();
  if (ahead > epochs_.tokens()) {
    return wire::ErrorOf(
        wire::reason::kChunkMisshapen,
        absl::StrCat(name, ": would be ", ahead,
                     " rows ahead of another tensor, the limit is an epoch's ", epochs_.tokens()));
  }
  if (const uint32_t crc = payload.Crc32c(); crc != chunk.crc32c()) {
    return wire::ErrorOf(wire::reason::kChecksumMismatch,
                         absl::StrCat(name, ": chunk at first_row ", chunk.first_row(),
                                      " has crc32c ", absl::Hex(chunk.crc32c(), absl::kZeroPad8),
                                      ", its payload ", absl::Hex(crc, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

absl::Status StreamRows::Accept(const v1::Chunk& chunk, const wire::Payload& payload,
                                const JobStop& stop) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(Check(chunk, payload));
  Tensor& tensor = tensors_[IndexOf(chunk.tensor())];
  const int64_t end = tensor.come + chunk.rows();
  const bool room = changed_.wait(lock, stop.token(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return end - released_ <= held_rows_;
  });
  if (!room) return stop.why();
  lock.unlock();  // no other thread writes or reads these rows
  wire::PayloadReader from(payload);
  for (int64_t row = chunk.first_row(); row < end;) {
    const int64_t at = row % held_rows_;
    const int64_t rows = std::min(end - row, held_rows_ - at);
    from.Read(tensor.bytes.get() + at * tensor.row_bytes, rows * tensor.row_bytes);
    row += rows;
  }
  lock.lock();
  tensor.come = end;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status StreamRows::End() {
  const MutexLock lock(mutex_);
  const int64_t come = Come();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].come == come) continue;
    const auto least = std::ranges::min_element(tensors_, {}, &Tensor::come) - tensors_.begin();
    return wire::ErrorOf(wire::reason::kChunkMissing,
                         absl::StrCat("the stream ended with ", tensors_[i].come, " rows of ",
                                      wire::TensorName(wire::TensorOf(kStreamed[i])), " and ", come,
                                      " of ", wire::TensorName(wire::TensorOf(kStreamed[least]))));
  }
  ended_ = true;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<RowSpan> StreamRows::AwaitEpoch(const JobStop& stop) {
  MutexLock lock(mutex_);
  int64_t rows = 0;
  changed_.wait(lock, stop.token(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    rows = epochs_.DueAt(released_, Come(), ended_);
    return rows > 0 || ended_;
  });
  RETURN_IF_ERROR(stop.why());
  return RowSpan{released_, released_ + rows};
}

wire::Payload StreamRows::At(TensorKind kind, int64_t first_row, int64_t rows) const {
  const Tensor& tensor = tensors_[IndexOf(wire::TensorOf(kind))];
  wire::Payload payload;
  for (int64_t row = first_row; row < first_row + rows;) {
    const int64_t at = row % held_rows_;
    const int64_t count = std::min(first_row + rows - row, held_rows_ - at);
    payload.Append({reinterpret_cast<const char*>(tensor.bytes.get() + at * tensor.row_bytes),
                    static_cast<size_t>(count * tensor.row_bytes)});
    row += count;
  }
  return payload;
}

int64_t StreamRows::widest_row_bytes() const {
  return std::ranges::max_element(tensors_, {}, &Tensor::row_bytes)->row_bytes;
}

void StreamRows::Release(const RowSpan& epoch) {
  const MutexLock lock(mutex_);
  released_ = epoch.end;
  changed_.notify_all();
}

}  // namespace hilbert_ring::server
