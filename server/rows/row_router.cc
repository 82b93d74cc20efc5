#include "server/rows/row_router.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "engine/base/return_if_error.h"
#include "server/shard/run_message.h"
#include "wire/codec.h"
#include "wire/payload_message.h"

namespace hilbert_ring::server {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens travel as they lie in memory");

void AddRun(const RowRun& run, std::vector<RowRun>& runs) {
  if (!runs.empty() && runs.back().rank == run.rank &&
      runs.back().local_row + runs.back().rows == run.local_row) {
    runs.back().rows += run.rows;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

void RowRouter::AddSlots(int64_t begin, int64_t end, std::vector<RowRun>& runs) const {
  for (int64_t slot = begin; slot < end;) {
    const ShardRange& range = shards_.Find(slot);
    const int64_t count = std::min(end, range.end) - slot;
    AddRun({.rank = range.rank, .local_row = range.LocalRow(slot), .rows = count}, runs);
    slot += count;
  }
}

std::vector<RowRun> RowRouter::Runs(v1::Tensor tensor, int64_t first_row, int64_t rows) const {
  std::vector<RowRun> runs;
  if (shape_.slides != nullptr) {
    for (const TileSpan& tiles : shape_.slides->RunsOf(first_row, rows)) {
      AddSlots(tiles.first_token, tiles.first_token + tiles.tiles, runs);
    }
    return runs;
  }
  if (shape_.InOrder(*wire::TensorKindOf(tensor))) {
    AddSlots(first_row, first_row + rows, runs);
    return runs;
  }
  std::vector<int64_t> slots(rows);
  order_->Slots(first_row, slots);
  const ShardRange* range = nullptr;
  for (const int64_t slot : slots) {
    // Neighbours along a curve are mostly in the same range.
    if (range == nullptr || slot < range->begin || slot >= range->end) range = &shards_.Find(slot);
    AddRun({.rank = range->rank, .local_row = range->LocalRow(slot), .rows = 1}, runs);
  }
  return runs;
}

RowRun RowRouter::Find(v1::Tensor tensor, int64_t row) const {
  int64_t slot = row;
  if (!shape_.InOrder(*wire::TensorKindOf(tensor))) order_->Slots(row, std::span(&slot, 1));
  const ShardRange& range = shards_.Find(slot);
  return {.rank = range.rank, .local_row = range.LocalRow(slot), .rows = 1};
}

void RowRouter::WriteOrder(int rank, std::span<int64_t> tokens) const {
  if (!shape_.spec.ordering) return;
  for (const ShardRange& range : shards_.OfRank(rank)) {
    order_->Tokens(range.begin, tokens.subspan(range.local_begin, range.size()));
  }
}

bool RowRouter::SendOrder(int rank, wire::SlicePool& pool,
                          const std::function<bool(const grpc::ByteBuffer&)>& send) const {
  if (!shape_.spec.ordering) return true;
  constexpr int64_t kMostTokens = wire::kMaxPayloadBytes / static_cast<int64_t>(sizeof(int64_t));
  for (const ShardRange& range : shards_.OfRank(rank)) {
    for (int64_t slot = range.begin; slot < range.end;) {
      const std::shared_ptr<char[]> buffer = pool.Take();
      const std::span<int64_t> tokens(reinterpret_cast<int64_t*>(buffer.get()),
                                      static_cast<size_t>(std::min(kMostTokens, range.end - slot)));
      order_->Tokens(slot, tokens);
      v1::OrderPart part;
      part.set_first_local_row(range.LocalRow(slot));
      if (!send(JoinOrder(part, wire::SliceOf({buffer.get(), tokens.size_bytes()}, buffer)))) {
        return false;
      }
      slot += std::ssize(tokens);
    }
  }
  return true;
}

absl::Status VisitPlaces(const RowRouter& router, v1::Tensor tensor, const RowSet& rows,
                         int64_t piece,
                         const std::function<absl::Status(const std::vector<RowRun>&)>& visit) {
  for (const auto& [begin, end] : rows.ranges()) {
    for (int64_t row = begin; row < end; row += piece) {
      RETURN_IF_ERROR(visit(router.Runs(tensor, row, std::min(piece, end - row))));
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
