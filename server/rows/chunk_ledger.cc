#include "server/rows/chunk_ledger.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

bool IsOfTiles(v1::Tensor tensor) {
  return tensor == v1::TENSOR_TILES || tensor == v1::TENSOR_TILE_COORDS;
}

}  // namespace

ChunkLedger::ChunkLedger(const JobShape& shape) {
  if (shape.spec.ordering && shape.spec.ordering->coordinate_axes > 0) {
    tensors_.emplace(v1::TENSOR_COORDS,
                     Taken{.rows = RowSet(KeyTokens(shape.spec)),
                           .row_bytes = wire::TensorRowBytes(shape.spec, v1::TENSOR_COORDS)});
  }
  if (shape.rows.Has(TensorKind::kBiasCoords)) {
    tensors_.emplace(v1::TENSOR_BIAS_COORDS,
                     Taken{.rows = RowSet(KeyTokens(shape.spec)),
                           .row_bytes = shape.rows[TensorKind::kBiasCoords]});
  }
  for (const TensorKind tensor : kInputKinds) {
    if (!shape.rows.Has(tensor)) continue;
    tensors_.emplace(wire::TensorOf(tensor),
                     Taken{.rows = RowSet(shape.RowsOf(tensor)), .row_bytes = shape.rows[tensor]});
  }
}

absl::Status ChunkLedger::CheckRows(const v1::Chunk& chunk, int64_t bytes, const Taken& tensor) {
  const std::string name = wire::TensorName(chunk.tensor());
  if (chunk.rows() < 1) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": rows is ", chunk.rows(), ", must be at least 1"));
  }
  const int64_t size = tensor.rows.size();
  if (chunk.first_row() < 0 || chunk.first_row() >= size ||
      chunk.rows() > size - chunk.first_row()) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": chunk past the end: first_row ", chunk.first_row(),
                                      " and rows ", chunk.rows(), ", but the job has ", size,
                                      IsOfTiles(chunk.tensor()) ? " tiles" : " tokens"));
  }
  if (bytes > wire::kMaxPayloadBytes) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": payload has ", bytes, " bytes, a chunk's limit is ",
                                      wire::kMaxPayloadBytes));
  }
  if (bytes != chunk.rows() * tensor.row_bytes) {
    return wire::ErrorOf(
        wire::reason::kChunkMisshapen,
        absl::StrCat(name, ": payload has ", bytes, " bytes, but ", chunk.rows(), " rows of ",
                     tensor.row_bytes, " bytes are ", chunk.rows() * tensor.row_bytes));
  }
  return absl::OkStatus();
}

std::string ChunkLedger::Names() const {
  std::vector<std::string> names;
  for (const auto& [tensor, taken] : tensors_) names.push_back(wire::TensorName(tensor));
  return absl::StrJoin(names, ", ");
}

absl::Status ChunkLedger::Accept(const v1::Chunk& chunk, const wire::Payload& payload,
                                 Checksum checksum) {
  const std::string name = wire::TensorName(chunk.tensor());
  const auto found = tensors_.find(chunk.tensor());
  if (found == tensors_.end()) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat("tensor of a chunk is ", name, ", this job takes ", Names()));
  }
  for (const v1::Tensor ahead : {v1::TENSOR_COORDS, v1::TENSOR_BIAS_COORDS}) {
    if (ComesAhead(chunk.tensor()) || Complete(ahead)) continue;
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat("tensor ", name, ": came before all of ",
                                      wire::TensorName(ahead), ", of which ", Rows(ahead).count(),
                                      " of ", Rows(ahead).size(), " rows are there"));
  }
  RETURN_IF_ERROR(CheckRows(chunk, payload.bytes(), found->second));
  const uint32_t crc = checksum == Checksum::kChecked ? chunk.crc32c() : payload.Crc32c();
  if (crc != chunk.crc32c()) {
    return wire::ErrorOf(wire::reason::kChecksumMismatch,
                         absl::StrCat(name, ": chunk at first_row ", chunk.first_row(),
                                      " has crc32c ", absl::Hex(chunk.crc32c(), absl::kZeroPad8),
                                      ", its payload ", absl::Hex(crc, absl::kZeroPad8)));
  }
  const int64_t end = chunk.first_row() + chunk.rows();
  if (!found->second.rows.Add(chunk.first_row(), end)) {
    return wire::ErrorOf(wire::reason::kChunkMisshapen,
                         absl::StrCat(name, ": some of rows ", chunk.first_row(), " to ", end - 1,
                                      " have come before"));
  }
  if (const auto gone = gone_.find(chunk.tensor()); gone != gone_.end()) {
    gone->second.Remove(chunk.first_row(), end);
  }
  if (found->second.rows.fragments() > kMaxFragments) {
    return wire::ErrorOf(
        wire::reason::kChunkMisshapen,
        absl::StrCat(name, ": chunks leave more than ", kMaxFragments,
                     " gaps between them: send larger chunks, or more of them in order"));
  }
  return absl::OkStatus();
}

bool ChunkLedger::Complete(v1::Tensor tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() || found->second.rows.count() == found->second.rows.size();
}

bool ChunkLedger::Complete() const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [this](const auto& entry) { return Complete(entry.first); });
}

void ChunkLedger::Forget(v1::Tensor tensor, int64_t begin, int64_t end) {
  RowSet& rows = tensors_.at(tensor).rows;
  rows.Remove(begin, end);
  RowSet& gone = gone_.try_emplace(tensor, rows.size()).first->second;
  gone.Remove(begin, end);
  gone.Add(begin, end);
}

double ChunkLedger::fraction() const {
  double come = 0, all = 0;
  for (const auto& [tensor, taken] : tensors_) {
    come += static_cast<double>(taken.rows.count());
    all += static_cast<double>(taken.rows.size());
  }
  return come / all;
}

absl::Status ChunkLedger::CheckComplete() const {
  for (const auto& [tensor, taken] : tensors_) {
    if (Complete(tensor)) continue;
    const RowSet& rows = taken.rows;
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
