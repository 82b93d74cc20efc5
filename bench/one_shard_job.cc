#include "bench/one_shard_job.h"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "bench/or_fail.h"
#include "engine/order/permutation.h"
#include "engine/run/executor.h"

namespace hilbert_ring::bench {

OneShardJob::OneShardJob(const JobSpec& spec, Device& device)
    : device_(device),
      plan_(OrFail(MakePlan(spec, 1))),
      store_(OrFail(ShardStore::Make(device, plan_, 0))),
      tokens_(MostRows(spec)) {
  std::iota(tokens_.begin(), tokens_.end(), 0);
  if (!spec.ordering) return;
  OrFail(Permutation::Make(spec, {}))->Tokens(0, tokens_);
  OrFail(store_->WriteTokens(0, spec.tokens, tokens_.data()));
}

std::span<std::byte> OneShardJob::Rows(TensorKind kind) {
  return {store_->Row(kind, 0),
          static_cast<size_t>(store_->rows(kind) * RowBytes(plan_.spec, kind))};
}

void OneShardJob::Place(TensorKind kind, std::span<const std::byte> rows) {
  const std::span<std::byte> slots = Rows(kind);
  if (rows.size() != slots.size()) throw std::runtime_error("rows of another size");
  const int64_t bytes = RowBytes(plan_.spec, kind);
  for (int64_t slot = 0; slot < store_->rows(kind); ++slot) {
    std::memcpy(&slots[slot * bytes], &rows[tokens_[slot] * bytes], bytes);
  }
}

std::vector<std::byte> OneShardJob::Out() const {
  const int64_t bytes = RowBytes(plan_.spec, TensorKind::kOut);
  std::vector<std::byte> rows(bytes * plan_.spec.tokens), computed(rows.size());
  OrFail(store_->Read(TensorKind::kOut, 0, plan_.spec.tokens, computed.data()));
  for (int64_t slot = 0; slot < plan_.spec.tokens; ++slot) {
    std::memcpy(rows.data() + tokens_[slot] * bytes, computed.data() + slot * bytes, bytes);
  }
  return rows;
}

void OneShardJob::Run() {
  flops_ = OrFail(Execute(plan_, 0, *store_, device_, nullptr, 1, {})).flops;
}

}  // namespace hilbert_ring::bench
