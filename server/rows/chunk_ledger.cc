#include "server/rows/chunk_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {

ChunkLedger::ChunkLedger(const JobSpec& spec) : spec_(spec) {
  if (spec.ordering && spec.ordering->coordinate_axes > 0) {
    tensors_.emplace(v1::TENSOR_COORDS, spec.tokens);
  }
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    tensors_.emplace(tensor, spec.tokens);
  }
}

absl::Status ChunkLedger::CheckShape(const v1::Chunk& chunk, int64_t bytes,
                                     int64_t row_bytes) const {
  const std::string name = wire::TensorName(chunk.tensor());
  if (chunk.rows() < 1) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": rows is ", chunk.rows(), ", must be at least 1"));
  }
  if (chunk.first_row() < 0 || chunk.first_row() >= spec_.tokens ||
      chunk.rows() > spec_.tokens - chunk.first_row()) {
    return wire::ErrorOf(
        wire::reason::kChunkPastEnd,
        absl::StrCat(name, ": chunk past the end: first_row ", chunk.first_row(), " and rows ",
                     chunk.rows(), ", but the job has ", spec_.tokens, " tokens"));
  }
  if (bytes > wire::kMaxPayloadBytes) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": payload has ", bytes, " bytes, a chunk's limit is ",
                                      wire::kMaxPayloadBytes));
  }
  if (bytes != chunk.rows() * row_bytes) {
    return wire::ErrorOf(
        wire::reason::kChunkMisshapen,
        absl::StrCat(name, ": payload has ", bytes, " bytes, but ", chunk.rows(), " rows of ",
                     row_bytes, " bytes are ", chunk.rows() * row_bytes));
  }
  return absl::OkStatus();
}

absl::Status ChunkLedger::Accept(const v1::Chunk& chunk, const wire::Payload& payload) {
  const std::string name = wire::TensorName(chunk.tensor());
  const auto found = tensors_.find(chunk.tensor());
  if (found == tensors_.end()) {
    return wire::ErrorOf(
        wire::reason::kBadTensor,
        absl::StrCat("tensor of a chunk is ", name, ", this job takes ",
                     tensors_.contains(v1::TENSOR_COORDS) ? "COORDS, " : "", "Q, K and V"));
  }
  if (chunk.tensor() != v1::TENSOR_COORDS && !Complete(v1::TENSOR_COORDS)) {
    return wire::ErrorOf(wire::reason::kCoordsFirst,
                         absl::StrCat("tensor ", name, ": came before all of COORDS, of which ",
                                      tensors_.at(v1::TENSOR_COORDS).count(), " of ", spec_.tokens,
                                      " rows are there"));
  }
  RETURN_IF_ERROR(CheckShape(chunk, payload.bytes(), wire::TensorRowBytes(spec_, chunk.tensor())));
  if (const uint32_t crc = payload.Crc32c(); crc != chunk.crc32c()) {
    return wire::ErrorOf(wire::reason::kChecksumMismatch,
                         absl::StrCat(name, ": chunk at first_row ", chunk.first_row(),
                                      " has crc32c ", absl::Hex(chunk.crc32c(), absl::kZeroPad8),
                                      ", its payload ", absl::Hex(crc, absl::kZeroPad8)));
  }
  const int64_t end = chunk.first_row() + chunk.rows();
  if (!found->second.Add(chunk.first_row(), end)) {
    return wire::ErrorOf(wire::reason::kChunkOverlap,
                         absl::StrCat(name, ": some of rows ", chunk.first_row(), " to ", end - 1,
                                      " have come before"));
  }
  if (const auto gone = gone_.find(chunk.tensor()); gone != gone_.end()) {
    gone->second.Remove(chunk.first_row(), end);
  }
  if (found->second.fragments() > kMaxFragments) {
    return wire::ErrorOf(
        wire::reason::kChunksTooScattered,
        absl::StrCat(name, ": chunks leave more than ", kMaxFragments,
                     " gaps between them: send larger chunks, or more of them in order"));
  }
  return absl::OkStatus();
}

bool ChunkLedger::Complete(v1::Tensor tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() || found->second.count() == found->second.size();
}

bool ChunkLedger::Complete() const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [this](const auto& entry) { return Complete(entry.first); });
}

void ChunkLedger::Forget(v1::Tensor tensor, int64_t begin, int64_t end) {
  tensors_.at(tensor).Remove(begin, end);
  RowSet& gone = gone_.try_emplace(tensor, spec_.tokens).first->second;
  gone.Remove(begin, end);
  gone.Add(begin, end);
}

double ChunkLedger::fraction() const {
  double come = 0, all = 0;
  for (const auto& [tensor, rows] : tensors_) {
    come += static_cast<double>(rows.count());
    all += static_cast<double>(rows.size());
  }
  return come / all;
}

absl::Status ChunkLedger::CheckComplete() const {
  for (const auto& [tensor, rows] : tensors_) {
    if (Complete(tensor)) continue;
    const auto gone = gone_.find(tensor);
    if (gone != gone_.end() && gone->second.count() > 0) {
      const auto& [begin, end] = *gone->second.ranges().begin();
      return wire::ErrorOf(
          wire::reason::kRowsLost,
          absl::StrCat(
              gone->second.count(), " rows of ", wire::TensorName(tensor), ", the first are ",
              begin, " to ", end - 1,
              ", were lost with a worker, and the client has closed its side without sending them "
              "again"));
    }
    const RowSpan gap = rows.GapFrom(0);
    return wire::ErrorOf(wire::reason::kChunkMissing,
                         absl::StrCat(wire::TensorName(tensor), ": ", rows.size() - rows.count(),
                                      " of ", rows.size(), " rows are missing, the first are ",
                                      gap.begin, " to ", gap.end - 1));
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
