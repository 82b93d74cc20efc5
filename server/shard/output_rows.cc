#include "server/shard/output_rows.h"

#include <algorithm>

#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kListedTokenBytes = 6;  // 7 bits a byte; tokens are below 2^40

// Outputs have the places of queries.
bool SlotsAreTokens(const Plan& plan) {
  return !plan.spec.ordering || plan.spec.ordering->scope == OrderScope::kKv || plan.rectangle;
}

}  // namespace

OutputSource SourceOf(const HostShard& shard) {
  return {.tokens = shard.tokens(),
          .read = [shard](TensorKind tensor, int64_t local_row,
                          int64_t rows) -> absl::StatusOr<std::string_view> {
            return std::string_view(reinterpret_cast<const char*>(shard.Row(tensor, local_row)),
                                    static_cast<size_t>(rows * shard.layout().RowBytes(tensor)));
          }};
}

bool OutputRows::Next(int64_t rows_final, v1::OutputChunk& chunk, std::string_view& payload) {
  for (size_t i = 0; i < cursors_.size(); ++i) {
    const TensorKind tensor = kOutputKinds[i];
    if (!plan_.rows.Has(tensor) || (tensor == TensorKind::kLse && !want_lse_)) continue;
    if (Next(tensor, cursors_[i], rows_final, chunk, payload)) return true;
  }
  return false;
}

// Moves the cursor to the next local row below rows_final that is not delivered. undelivered: the
// slots from there on.
bool OutputRows::SkipDelivered(const RowSet& delivered, Cursor& cursor, int64_t rows_final,
                               RowSpan& undelivered) const {
  const std::vector<ShardRange>& ranges = plan_.ShardsOf(TensorKind::kOut).OfRank(rank_);
  while (cursor.row < rows_final) {
    const ShardRange& range = ranges[cursor.range];
    const int64_t slot = range.begin + cursor.row - range.local_begin;
    const int64_t end = std::min(range.end, slot + rows_final - cursor.row);
    undelivered = delivered.GapFrom(slot);
    undelivered.begin = std::min(undelivered.begin, end);
    undelivered.end = std::min(undelivered.end, end);
    cursor.row += undelivered.begin - slot;
    if (undelivered.begin < undelivered.end) return true;
    if (undelivered.begin == range.end) ++cursor.range;
  }
  return false;
}

bool OutputRows::Next(TensorKind tensor, Cursor& cursor, int64_t rows_final, v1::OutputChunk& chunk,
                      std::string_view& payload) {
  if (!status_.ok()) return false;
  RowSpan slots;
  if (!SkipDelivered(delivered_.of(tensor), cursor, rows_final, slots)) return false;
  const int64_t row_bytes = plan_.rows[tensor];
  const bool listed = !SlotsAreTokens(plan_);
  const int64_t most =
      std::max<int64_t>(1, wire::kMaxPayloadBytes / (row_bytes + (listed ? kListedTokenBytes : 0)));
  const int64_t rows = std::min(most, slots.end - slots.begin);
  chunk.Clear();
  chunk.set_tensor(wire::TensorOf(tensor));
  chunk.set_rows(rows);
  if (listed) {
    const auto tokens = source_.tokens.subspan(cursor.row, rows);
    chunk.mutable_tokens()->Add(tokens.begin(), tokens.end());
  } else {
    chunk.set_first_token(slots.begin);
  }
  const auto there = source_.read(tensor, cursor.row, rows);
  if (!there.ok()) {
    status_ = there.status();
    return false;
  }
  payload = *there;
  chunk.set_crc32c(wire::Crc32c(payload));
  first_slot_ = slots.begin;
  cursor.row += rows;
  if (slots.begin + rows == plan_.ShardsOf(TensorKind::kOut).OfRank(rank_)[cursor.range].end)
    ++cursor.range;
  return true;
}

}  // namespace hilbert_ring::server
