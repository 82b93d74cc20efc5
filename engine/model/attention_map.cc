#include "engine/model/attention_map.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/return_if_error.h"
#include "engine/spec/numbers.h"

namespace hilbert_ring {

AttentionMap::AttentionMap(const EncoderPlan& plan, int rank, MapColumns columns)
    : plan_(plan),
      rank_(rank),
      columns_(columns == MapColumns::kHeads ? plan.config.heads : 1),
      query_bytes_(MapQueryBytes(plan)),
      row_bytes_(MapRowBytes(plan)),
      transfers_(MapTransfers(plan)) {
  std::erase_if(transfers_, [rank](const MapTransfer& transfer) {
    return transfer.from != rank && transfer.to != rank;
  });
  for (const MapTransfer& transfer : transfers_) {
    if (transfer.to == rank_) received_[transfer.slide].resize(static_cast<size_t>(row_bytes_));
  }
}

absl::Status AttentionMap::Exchange(const ShardStore& store, Communicator* communicator,
                                    int64_t step, Deadline deadline) {
  CommStep exchange{.number = step};
  std::map<int64_t, std::vector<std::byte>> sent;
  for (const MapTransfer& transfer : transfers_) {
    if (transfer.from == rank_) {
      auto& row = sent[transfer.slide];
      if (row.empty()) {
        std::vector<std::byte> kept;
        ASSIGN_OR_RETURN(const ClassRow of_slide, ClassRowOf(store, transfer.slide, kept));
        row.resize(static_cast<size_t>(row_bytes_));
        std::memcpy(row.data(), of_slide.query, static_cast<size_t>(query_bytes_));
        std::memcpy(row.data() + query_bytes_, of_slide.lse,
                    static_cast<size_t>(row_bytes_ - query_bytes_));
      }
      exchange.sends.push_back({.peer = transfer.to, .data = row.data(), .bytes = row_bytes_});
    } else {
      exchange.receives.push_back({.peer = transfer.from,
                                   .data = received_.at(transfer.slide).data(),
                                   .bytes = row_bytes_});
    }
  }
  if (!exchanges()) return absl::OkStatus();
  absl::Status status = communicator->Post(exchange);
  if (status.ok()) status = communicator->Wait(deadline);
  return status;
}

absl::StatusOr<AttentionMap::ClassRow> AttentionMap::ClassRowOf(
    const ShardStore& store, int64_t slide, std::vector<std::byte>& kept) const {
  const auto of_bytes = [this](const std::byte* row) {
    return ClassRow{.query = row, .lse = reinterpret_cast<const float*>(row + query_bytes_)};
  };
  if (const auto found = received_.find(slide); found != received_.end()) {
    return of_bytes(found->second.data());
  }
  const int64_t first = plan_.rows.FirstToken(slide);
  const ShardRange& range = plan_.attention.shards.Find(first);
  if (range.rank != rank_) return ClassRow{};  // it attends to no row of this rank
  const int64_t local = range.LocalRow(first);
  if (!store.host_memory()) {
    kept.resize(static_cast<size_t>(row_bytes_));
    RETURN_IF_ERROR(store.Read(TensorKind::kQ, local, 1, kept.data()));
    RETURN_IF_ERROR(store.Read(TensorKind::kLse, local, 1, kept.data() + query_bytes_));
    return of_bytes(kept.data());
  }
  return ClassRow{.query = store.Row(TensorKind::kQ, local),
                  .lse = reinterpret_cast<const float*>(store.Row(TensorKind::kLse, local))};
}

absl::Status AttentionMap::RowsOf(const ShardStore& store, int64_t first, int64_t rows,
                                  float* values) const {
  const JobSpec& spec = plan_.attention.spec;
  const int64_t heads = spec.heads, dim = spec.head_dim;
  const double scale = spec.scale.value_or(1 / std::sqrt(static_cast<double>(dim)));
  std::fill_n(values, rows * columns_, 0.0f);
  const auto& ranges = plan_.attention.shards.OfRank(rank_);
  const auto range = std::ranges::find_if(ranges, [&](const ShardRange& candidate) {
    return first >= candidate.local_begin && first < candidate.local_begin + candidate.size();
  });
  std::vector<int> shown(static_cast<size_t>(heads));  // by head: branches that show it the key
  std::vector<double> query(static_cast<size_t>(heads * dim)), key(query.size());
  ClassRow class_row;
  std::vector<std::byte> of_class, of_keys;  // copies of device memory
  int64_t query_slide = -1;
  const int64_t key_bytes = heads * dim * ElementBytes(spec.dtype);
  const std::byte* keys = store.Row(TensorKind::kK, first);
  if (!store.host_memory()) {
    of_keys.resize(static_cast<size_t>(rows * key_bytes));
    RETURN_IF_ERROR(store.Read(TensorKind::kK, first, rows, of_keys.data()));
    keys = of_keys.data();
  }
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t slot = range->begin + first + i - range->local_begin;
    const int64_t slide = plan_.rows.SlideOf(slot);
    if (slide != query_slide) {
      ASSIGN_OR_RETURN(class_row, ClassRowOf(store, slide, of_class));
      if (class_row.query != nullptr) LoadElements(spec.dtype, class_row.query, query);
      query_slide = slide;
    }
    if (class_row.query == nullptr) continue;
    const int64_t origin = plan_.rows.FirstToken(slide);
    std::ranges::fill(shown, 0);
    for (const Phase& phase : plan_.attention.phases) {
      const Branch& branch = spec.branches[phase.branch];
      if (!SelectsFirst(phase) || slot - origin >= branch.segment ||
          (slot - origin) % branch.dilation != 0) {
        continue;
      }
      for (int64_t head = phase.head_begin; head < phase.head_end; ++head) ++shown[head];
    }
    LoadElements(spec.dtype, keys + i * key_bytes, key);
    for (int64_t head = 0; head < heads; ++head) {
      if (shown[head] == 0) continue;
      double score = 0;
      for (int64_t x = head * dim; x < (head + 1) * dim; ++x) score += query[x] * key[x];
      const double weight = shown[head] * std::exp(score * scale - class_row.lse[head]);
      float& value = values[i * columns_ + (columns_ > 1 ? head : 0)];
      value += static_cast<float>(columns_ > 1 ? weight : weight / static_cast<double>(heads));
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring
