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

// Rows of coordinates that are filled at once: 192 KiB at most, below a payload's limit.
constexpr int64_t kMostRowsAtOnce = int64_t{1} << 14;

void AddRun(const RowRun& run, std::vector<RowRun>& runs) {
  if (!runs.empty() && runs.back().rank == run.rank &&
      runs.back().local_row + runs.back().rows == run.local_row) {
    runs.back().rows += run.rows;
  } else {
    runs.push_back(run);
  }
}

void AddSlots(const Shards& shards, int64_t begin, int64_t end, std::vector<RowRun>& runs) {
  for (int64_t slot = begin; slot < end;) {
    const ShardRange& range = shards.Find(slot);
    const int64_t count = std::min(end, range.end) - slot;
    AddRun({.rank = range.rank, .local_row = range.LocalRow(slot), .rows = count}, runs);
    slot += count;
  }
}

}  // namespace

const Shards& RowRouter::ShardsOf(v1::Tensor tensor) const {
  return plan_.ShardsOf(*wire::TensorKindOf(tensor));
}

std::vector<RowRun> RowRouter::Runs(v1::Tensor tensor, int64_t first_row, int64_t rows) const {
  const Shards& shards = ShardsOf(tensor);
  std::vector<RowRun> runs;
  if (shape_.slides != nullptr) {
    for (const TileSpan& tiles : shape_.slides->RunsOf(first_row, rows)) {
      AddSlots(shards, tiles.first_token, tiles.first_token + tiles.tiles, runs);
    }
    return runs;
  }
  if (shape_.InOrder(*wire::TensorKindOf(tensor))) {
    AddSlots(shards, first_row, first_row + rows, runs);
    return runs;
  }
  std::vector<int64_t> slots(rows);
  order_->Slots(first_row, slots);
  const ShardRange* range = nullptr;
  for (const int64_t slot : slots) {
    // Neighbours along a curve are mostly in the same range.
    if (range == nullptr || slot < range->begin || slot >= range->end) range = &shards.Find(slot);
    AddRun({.rank = range->rank, .local_row = range->LocalRow(slot), .rows = 1}, runs);
  }
  return runs;
}

RowRun RowRouter::Find(v1::Tensor tensor, int64_t row) const {
  int64_t slot = row;
  if (!shape_.InOrder(*wire::TensorKindOf(tensor))) order_->Slots(row, std::span(&slot, 1));
  const ShardRange& range = ShardsOf(tensor).Find(slot);
  return {.rank = range.rank, .local_row = range.LocalRow(slot), .rows = 1};
}

bool RowRouter::VisitOrder(int rank, int64_t most, const Visit<int64_t>& visit) const {
  if (!shape_.spec.ordering) return true;
  for (const ShardRange& range : plan_.shards.OfRank(rank)) {
    for (int64_t slot = range.begin; slot < range.end; slot += most) {
      const auto fill = [&](std::span<int64_t> tokens) { order_->Tokens(slot, tokens); };
      if (!visit(range.LocalRow(slot), std::min(most, range.end - slot), fill)) return false;
    }
  }
  if (!plan_.rectangle || !QueriesCarrySlots(shape_.spec)) return true;
  const int64_t keys = plan_.shards.Rows(rank);
  const Rows queries = plan_.rectangle->QueriesOf(rank);
  for (const SequencePair& pair :
       PairsWith(plan_.rectangle->pairs, &SequencePair::queries, queries)) {
    const Rows rows =
        Overlap(queries, {pair.queries.begin, pair.queries.begin + pair.queries.length});
    for (int64_t query = rows.begin; query < rows.end; query += most) {
      const int64_t position = pair.keys.begin + pair.shift + query - pair.queries.begin;
      const auto fill = [&](std::span<int64_t> slots) {
        if (pair.keys.length == 0) {  // the slots of its queries are never read
          std::ranges::fill(slots, 0);
        } else {
          order_->Slots(position, slots);
        }
      };
      if (!visit(keys + query - queries.begin, std::min(most, rows.end - query), fill)) {
        return false;
      }
    }
  }
  return true;
}

bool RowRouter::VisitPositions(const Positions& positions, int64_t most,
                               const Visit<float>& visit) const {
  const int64_t axes = BiasAxes(shape_.spec);
  for (int64_t at = positions.begin; at < positions.end; at += most) {
    const auto fill = [&](std::span<float> values) {
      if (!positions.are_slots || !shape_.spec.ordering) {
        std::ranges::copy(bias_coordinates_.subspan(at * axes, values.size()), values.begin());
        return;
      }
      std::vector<int64_t> tokens(values.size() / axes);
      order_->Tokens(at, tokens);
      auto to = values.begin();
      for (const int64_t token : tokens) {
        to = std::ranges::copy(bias_coordinates_.subspan(token * axes, axes), to).out;
      }
    };
    const int64_t count = std::min(most, positions.end - at);
    if (!visit(positions.local_row + at - positions.begin, count, fill)) return false;
  }
  return true;
}

bool RowRouter::VisitCoordinates(int rank, int64_t most, const Visit<float>& visit) const {
  if (bias_coordinates_.empty()) return true;
  const bool has_queries = HasQueryCoordinates(shape_.spec);
  const int64_t keys = plan_.shards.Rows(rank);
  for (const ShardRange& range : plan_.shards.OfRank(rank)) {
    Positions positions{range.local_begin, range.begin, range.end, true};
    if (!VisitPositions(positions, most, visit)) return false;
    if (!has_queries || plan_.rectangle) continue;
    positions.local_row += keys;
    positions.are_slots = false;
    if (!VisitPositions(positions, most, visit)) return false;
  }
  if (!plan_.rectangle) return true;
  const Rows queries = plan_.rectangle->QueriesOf(rank);
  for (const SequencePair& pair :
       PairsWith(plan_.rectangle->pairs, &SequencePair::queries, queries)) {
    const Rows rows =
        Overlap(queries, {pair.queries.begin, pair.queries.begin + pair.queries.length});
    const int64_t begin = pair.keys.begin + pair.shift + rows.begin - pair.queries.begin;
    const Positions positions{keys + rows.begin - queries.begin, begin, begin + rows.count(),
                              false};
    if (!VisitPositions(positions, most, visit)) return false;
  }
  return true;
}

void RowRouter::WriteOrder(int rank, const HostShard& shard) const {
  const std::span<int64_t> tokens = shard.tokens();
  VisitOrder(rank, std::ssize(tokens), [&](int64_t first, int64_t count, const auto& fill) {
    fill(tokens.subspan(first, count));
    return true;
  });
  const int64_t axes = BiasAxes(shape_.spec);
  VisitCoordinates(rank, kMostRowsAtOnce, [&](int64_t first, int64_t count, const auto& fill) {
    auto* const row = reinterpret_cast<float*>(shard.Row(TensorKind::kBiasCoords, first));
    fill(std::span<float>(row, static_cast<size_t>(count * axes)));
    return true;
  });
}

bool RowRouter::SendOrder(int rank, wire::SlicePool& pool,
                          const std::function<bool(const grpc::ByteBuffer&)>& send) const {
  const auto pass = [&]<typename Number>(int64_t first, int64_t numbers, bool coordinates,
                                         const Fill<Number>& fill) {
    const std::shared_ptr<char[]> buffer = pool.Take();
    const std::span<Number> values(reinterpret_cast<Number*>(buffer.get()),
                                   static_cast<size_t>(numbers));
    fill(values);
    v1::OrderPart part;
    part.set_first_local_row(first);
    part.set_coordinates(coordinates);
    return send(JoinOrder(part, wire::SliceOf({buffer.get(), values.size_bytes()}, buffer)));
  };
  constexpr int64_t kMostTokens = wire::kMaxPayloadBytes / static_cast<int64_t>(sizeof(int64_t));
  const int64_t axes = BiasAxes(shape_.spec);
  return VisitOrder(rank, kMostTokens,
                    [&](int64_t first, int64_t count, const Fill<int64_t>& fill) {
                      return pass(first, count, false, fill);
                    }) &&
         VisitCoordinates(rank, kMostRowsAtOnce,
                          [&](int64_t first, int64_t count, const Fill<float>& fill) {
                            return pass(first, count * axes, true, fill);
                          });
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
