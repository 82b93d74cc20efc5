#include "server/coordinator/chunk_ledger.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {

bool RowSet::Add(int64_t begin, int64_t end) {
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < end) return false;
  if (next != ranges_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second > begin) return false;
    if (previous->second == begin) {
      count_ += end - begin;
      previous->second = end;
      if (next != ranges_.end() && next->first == end) {
        previous->second = next->second;
        ranges_.erase(next);
      }
      return true;
    }
  }
  count_ += end - begin;
  if (next != ranges_.end() && next->first == end) {
    end = next->second;
    next = ranges_.erase(next);
  }
  ranges_.emplace_hint(next, begin, end);
  return true;
}

RowSet::Gap RowSet::FirstGap() const {
  if (ranges_.empty()) return {0, size_};
  const auto first = ranges_.begin();
  if (first->first > 0) return {0, first->first};
  const auto second = std::next(first);
  return {first->second, second == ranges_.end() ? size_ : second->first};
}

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
    return wire::WithReason(absl::InvalidArgumentError(absl::StrCat(
                                name, ": rows is ", chunk.rows(), ", must be at least 1")),
                            "CHUNK_MISSHAPEN");
  }
  if (chunk.first_row() < 0 || chunk.first_row() >= spec_.tokens ||
      chunk.rows() > spec_.tokens - chunk.first_row()) {
    return wire::WithReason(
        absl::OutOfRangeError(absl::StrCat(name, ": chunk past the end: first_row ",
                                           chunk.first_row(), " and rows ", chunk.rows(),
                                           ", but the job has ", spec_.tokens, " tokens")),
        "CHUNK_PAST_END");
  }
  if (bytes > wire::kMaxPayloadBytes) {
    return wire::WithReason(
        absl::InvalidArgumentError(absl::StrCat(
            name, ": payload has ", bytes, " bytes, a chunk's limit is ", wire::kMaxPayloadBytes)),
        "CHUNK_MISSHAPEN");
  }
  if (bytes != chunk.rows() * row_bytes) {
    return wire::WithReason(absl::InvalidArgumentError(absl::StrCat(
                                name, ": payload has ", bytes, " bytes, but ", chunk.rows(),
                                " rows of ", row_bytes, " bytes are ", chunk.rows() * row_bytes)),
                            "CHUNK_MISSHAPEN");
  }
  return absl::OkStatus();
}

absl::Status ChunkLedger::Accept(const v1::Chunk& chunk, const wire::Payload& payload) {
  const std::string name = wire::TensorName(chunk.tensor());
  const auto found = tensors_.find(chunk.tensor());
  if (found == tensors_.end()) {
    return wire::WithReason(
        absl::InvalidArgumentError(
            absl::StrCat("tensor of a chunk is ", name, ", this job takes ",
                         tensors_.contains(v1::TENSOR_COORDS) ? "COORDS, " : "", "Q, K and V")),
        "BAD_TENSOR");
  }
  if (chunk.tensor() != v1::TENSOR_COORDS && !Complete(v1::TENSOR_COORDS)) {
    return wire::WithReason(
        absl::InvalidArgumentError(absl::StrCat(
            "tensor ", name, ": came before all of COORDS, of which ",
            tensors_.at(v1::TENSOR_COORDS).count(), " of ", spec_.tokens, " rows are there")),
        "COORDS_FIRST");
  }
  absl::Status status =
      CheckShape(chunk, payload.bytes(), wire::TensorRowBytes(spec_, chunk.tensor()));
  if (!status.ok()) return status;
  if (const uint32_t crc = payload.Crc32c(); crc != chunk.crc32c()) {
    return wire::WithReason(
        absl::DataLossError(absl::StrCat(name, ": chunk at first_row ", chunk.first_row(),
                                         " has crc32c ", absl::Hex(chunk.crc32c(), absl::kZeroPad8),
                                         ", its payload ", absl::Hex(crc, absl::kZeroPad8))),
        "CHECKSUM_MISMATCH");
  }
  const int64_t end = chunk.first_row() + chunk.rows();
  if (!found->second.Add(chunk.first_row(), end)) {
    return wire::WithReason(
        absl::InvalidArgumentError(absl::StrCat(name, ": some of rows ", chunk.first_row(), " to ",
                                                end - 1, " have come before")),
        "CHUNK_OVERLAP");
  }
  if (found->second.fragments() > kMaxFragments) {
    return wire::WithReason(
        absl::OutOfRangeError(
            absl::StrCat(name, ": chunks leave more than ", kMaxFragments,
                         " gaps between them: send larger chunks, or more of them in order")),
        "CHUNKS_TOO_SCATTERED");
  }
  return absl::OkStatus();
}

bool ChunkLedger::Complete(v1::Tensor tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() || found->second.count() == found->second.size();
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
    const RowSet::Gap gap = rows.FirstGap();
    return wire::WithReason(
        absl::InvalidArgumentError(absl::StrCat(
            wire::TensorName(tensor), ": ", rows.size() - rows.count(), " of ", rows.size(),
            " rows are missing, the first are ", gap.begin, " to ", gap.end - 1)),
        "CHUNK_MISSING");
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
