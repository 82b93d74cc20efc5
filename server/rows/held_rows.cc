#include "server/rows/held_rows.h"

#include <algorithm>
#include <utility>

#include "engine/base/return_if_error.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;

bool SameRanges(const std::vector<ShardRange>& a, const std::vector<ShardRange>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ShardRange& x, const ShardRange& y) {
                      return x.begin == y.begin && x.end == y.end;
                    });
}

}  // namespace

HeldRows::HeldRows(const Plan& plan, Members members, std::vector<HeldShard> by_rank, int lane)
    : slots_(plan.shards),
      queries_(plan.ShardsOf(TensorKind::kQ)),
      members_(std::move(members)),
      by_rank_(std::move(by_rank)),
      lane_(lane) {
  const auto add = [](const std::vector<ShardRange>& ranges, std::vector<RowSpan>& lost) {
    for (const ShardRange& range : ranges) lost.push_back({range.begin, range.end});
  };
  for (size_t rank = 0; rank < by_rank_.size(); ++rank) {
    if (by_rank_[rank].rows) continue;
    add(slots_.OfRank(static_cast<int>(rank)), lost_.slots);
    add(queries_.OfRank(static_cast<int>(rank)), lost_.queries);
  }
}

absl::StatusOr<HeldShard> HeldRows::Carry(const Plan& plan, int rank, const Member& member,
                                          int lane, SharedMemoryPool& pool) {
  for (size_t old = 0; old < by_rank_.size(); ++old) {
    if (!by_rank_[old].rows || by_rank_[old].memory.use_count() > 1 ||
        members_[old].get() != &member || lane_ != lane ||
        !SameRanges(slots_.OfRank(static_cast<int>(old)), plan.shards.OfRank(rank)) ||
        !SameRanges(queries_.OfRank(static_cast<int>(old)),
                    plan.ShardsOf(TensorKind::kQ).OfRank(rank))) {
      continue;
    }
    HeldShard same = std::exchange(by_rank_[old], HeldShard());
    same.copy.reset();
    same.memory->MarkUsed();
    same.rows.emplace(same.memory->data(), ShardLayout(plan, rank));
    return same;
  }
  HeldShard shard;
  const ShardLayout layout(plan, rank);
  ASSIGN_OR_RETURN(shard.memory, pool.Take(layout.bytes()));
  shard.rows.emplace(shard.memory->data(), layout);
  if (by_rank_.empty()) return shard;
  for (const TensorKind tensor : kInputKinds) {
    if (!plan.rows.Has(tensor)) continue;
    for (const ShardRange& range : plan.ShardsOf(tensor).OfRank(rank)) {
      RETURN_IF_ERROR(Copy(plan, tensor, range, shard));
    }
  }
  return shard;
}

absl::Status HeldRows::Copy(const Plan& plan, TensorKind tensor, const ShardRange& range,
                            HeldShard& to) {
  const int64_t row_bytes = plan.rows[tensor];
  const int64_t most = std::max<int64_t>(1, kPieceBytes / row_bytes);
  for (int64_t slot = range.begin; slot < range.end;) {
    const ShardRange& source = ShardsOf(tensor).Find(slot);
    const int64_t end = std::min(source.end, range.end);
    const HeldShard& from = by_rank_[source.rank];
    for (int64_t row = slot; from.rows && row < end; row += most) {
      const int64_t bytes = std::min(most, end - row) * row_bytes;
      std::byte* const old = from.rows->Row(tensor, source.LocalRow(row));
      const wire::Payload piece({reinterpret_cast<const char*>(old), static_cast<size_t>(bytes)});
      wire::PayloadReader reader(piece);
      RETURN_IF_ERROR(to.memory->Write(to.rows->Row(tensor, range.LocalRow(row)), reader, bytes));
      from.memory->Discard(old, bytes);
    }
    slot = end;
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server
