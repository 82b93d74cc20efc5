#include "tests/fuzz/attend_model.h"

#include <algorithm>

#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::fuzz {

AttendModel::AttendModel(const JobSpec& spec) : spec_(spec) {
  const auto tokens = static_cast<size_t>(spec.tokens);
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    rows_[tensor].resize(tokens);
  }
  if (spec.ordering && spec.ordering->coordinate_axes > 0) rows_[v1::TENSOR_COORDS].resize(tokens);
}

std::string AttendModel::Accept(const v1::Chunk& chunk, const std::string& payload) {
  const auto found = rows_.find(chunk.tensor());
  if (found == rows_.end()) return "BAD_TENSOR";
  if (chunk.tensor() != v1::TENSOR_COORDS && !Complete(v1::TENSOR_COORDS)) return "COORDS_FIRST";
  if (chunk.rows() < 1) return "CHUNK_MISSHAPEN";
  const __int128 end = static_cast<__int128>(chunk.first_row()) + chunk.rows();
  if (chunk.first_row() < 0 || end > spec_.tokens) return "CHUNK_PAST_END";
  const int64_t row_bytes = wire::TensorRowBytes(spec_, chunk.tensor());
  if (static_cast<int64_t>(payload.size()) != chunk.rows() * row_bytes) return "CHUNK_MISSHAPEN";
  if (wire::Crc32c(payload) != chunk.crc32c()) return "CHECKSUM_MISMATCH";
  const auto first = found->second.begin() + chunk.first_row();
  const auto last = first + chunk.rows();
  if (std::find(first, last, true) != last) return "CHUNK_OVERLAP";
  std::fill(first, last, true);
  return "";
}

bool AttendModel::complete() const {
  return std::all_of(rows_.begin(), rows_.end(),
                     [this](const auto& tensor) { return Complete(tensor.first); });
}

bool AttendModel::Complete(v1::Tensor tensor) const {
  return !rows_.contains(tensor) || FirstMissing(tensor) == spec_.tokens;
}

int64_t AttendModel::FirstMissing(v1::Tensor tensor) const {
  const std::vector<bool>& rows = rows_.at(tensor);
  return std::find(rows.begin(), rows.end(), false) - rows.begin();
}

}  // namespace hilbert_ring::fuzz
