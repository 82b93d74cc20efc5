#include "server/coordinator/row_router.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens travel as they lie in memory");

// Bytes of a listed row number on the wire: 7 bits each, rows are below 2^40.
constexpr int64_t kListedRowBytes = 6;

}  // namespace

bool RowRouter::InOrder(v1::Tensor tensor) const {
  return !spec_.ordering || (tensor == v1::TENSOR_Q && spec_.ordering->scope == OrderScope::kKv);
}

std::vector<RoutedRows> RowRouter::Route(v1::Chunk&& chunk) const {
  return InOrder(chunk.tensor()) ? RouteRange(std::move(chunk)) : RouteScattered(std::move(chunk));
}

std::vector<RoutedRows> RowRouter::RouteRange(v1::Chunk&& chunk) const {
  std::vector<RoutedRows> routed;
  const int64_t row_bytes = wire::TensorRowBytes(spec_, chunk.tensor());
  const int64_t end = chunk.first_row() + chunk.rows();
  for (int64_t row = chunk.first_row(); row < end;) {
    const ShardRange& range = shards_.Find(row);
    const int64_t count = std::min(end, range.end) - row;
    RoutedRows& part = routed.emplace_back(RoutedRows{.rank = range.rank});
    part.rows.set_tensor(chunk.tensor());
    part.rows.set_rows(count);
    part.rows.set_first_local_row(range.LocalRow(row));
    if (count == chunk.rows()) {
      *part.rows.mutable_payload() = std::move(*chunk.mutable_payload());
      part.rows.set_crc32c(chunk.crc32c());
    } else {
      part.rows.set_payload(chunk.payload().data() + (row - chunk.first_row()) * row_bytes,
                            count * row_bytes);
      part.rows.set_crc32c(wire::Crc32c(part.rows.payload()));
    }
    row += count;
  }
  return routed;
}

std::vector<RoutedRows> RowRouter::RouteScattered(v1::Chunk&& chunk) const {
  const int64_t row_bytes = wire::TensorRowBytes(spec_, chunk.tensor());
  const int64_t most_rows =
      std::max<int64_t>(1, wire::kMaxPayloadBytes / (row_bytes + kListedRowBytes));
  std::vector<int64_t> slots(chunk.rows());
  order_->Slots(chunk.first_row(), slots);

  std::vector<RoutedRows> routed;
  std::vector<int64_t> left(shards_.workers());  // rows of a rank that are not placed yet
  std::vector<int> open(shards_.workers(), -1);  // a rank's message that is being filled
  std::vector<std::pair<int, int64_t>> places;   // [row]: rank, local row
  places.reserve(slots.size());
  const ShardRange* range = nullptr;
  for (const int64_t slot : slots) {
    // Neighbours along a curve are mostly neighbours in the same range.
    if (range == nullptr || slot < range->begin || slot >= range->end) range = &shards_.Find(slot);
    places.emplace_back(range->rank, range->LocalRow(slot));
    ++left[range->rank];
  }
  const bool whole = chunk.rows() <= most_rows && left[places.front().first] == chunk.rows();
  const char* from = chunk.payload().data();
  for (const auto& [rank, local_row] : places) {
    if (open[rank] < 0) {
      open[rank] = static_cast<int>(routed.size());
      RoutedRows& part = routed.emplace_back(RoutedRows{.rank = rank});
      const int64_t rows = std::min(left[rank], most_rows);
      left[rank] -= rows;
      part.rows.set_tensor(chunk.tensor());
      part.rows.set_rows(rows);
      part.rows.mutable_local_rows()->Reserve(static_cast<int>(rows));
      if (!whole) part.rows.mutable_payload()->reserve(rows * row_bytes);
    }
    v1::ShardRows& rows = routed[open[rank]].rows;
    rows.add_local_rows(local_row);
    if (!whole) rows.mutable_payload()->append(from, row_bytes);
    from += row_bytes;
    if (rows.local_rows_size() == rows.rows()) open[rank] = -1;
  }
  if (whole) {
    *routed.front().rows.mutable_payload() = std::move(*chunk.mutable_payload());
    routed.front().rows.set_crc32c(chunk.crc32c());
    return routed;
  }
  for (RoutedRows& part : routed) part.rows.set_crc32c(wire::Crc32c(part.rows.payload()));
  return routed;
}

bool RowRouter::SendOrder(int rank, const std::function<bool(v1::OrderPart&&)>& send) const {
  if (!spec_.ordering) return true;
  constexpr int64_t kMostTokens = wire::kMaxPayloadBytes / static_cast<int64_t>(sizeof(int64_t));
  std::vector<int64_t> tokens;
  for (const ShardRange& range : shards_.OfRank(rank)) {
    for (int64_t slot = range.begin; slot < range.end;) {
      tokens.resize(std::min(kMostTokens, range.end - slot));
      order_->Tokens(slot, tokens);
      v1::OrderPart part;
      part.set_first_local_row(range.LocalRow(slot));
      part.set_tokens(tokens.data(), tokens.size() * sizeof(int64_t));
      if (!send(std::move(part))) return false;
      slot += static_cast<int64_t>(tokens.size());
    }
  }
  return true;
}

}  // namespace hilbert_ring::server
