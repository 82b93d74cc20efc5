#include "server/shard/output_rows.h"

#include <cstring>
#include <map>

#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

void ExpectAllRows(JobSpec spec, int workers, bool want_lse, RowSpan delivered_slots = {}) {
  const auto plan = MakePlan(spec, workers);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const bool listed = spec.ordering && spec.ordering->scope == OrderScope::kQkv;
  Delivered delivered(spec.tokens);
  const int64_t already = delivered_slots.end - delivered_slots.begin;
  if (already > 0) delivered.of(TensorKind::kOut).Add(delivered_slots.begin, delivered_slots.end);
  std::map<v1::Tensor, std::map<int64_t, int>> seen;
  for (int rank = 0; rank < workers; ++rank) {
    const ShardLayout layout(*plan, rank);
    std::vector<std::byte> memory(layout.bytes());
    const HostShard shard(memory.data(), layout);
    for (const ShardRange& range : plan->shards.OfRank(rank)) {
      for (int64_t slot = range.begin; slot < range.end; ++slot) {
        // The order reverses the job.
        const int64_t token = listed ? spec.tokens - 1 - slot : slot;
        if (spec.ordering) shard.tokens()[range.LocalRow(slot)] = spec.tokens - 1 - slot;
        std::memcpy(shard.Row(TensorKind::kOut, range.LocalRow(slot)), &token, 8);
        std::memcpy(shard.Row(TensorKind::kLse, range.LocalRow(slot)), &token, 8);
      }
    }
    OutputRows rows(*plan, rank, SourceOf(shard), want_lse, delivered);
    v1::OutputChunk chunk;
    std::string_view payload;
    // Rows become final in three parts.
    const int64_t all = shard.rows();
    int part = 0;
    const int64_t finals[] = {all / 3, all / 2, all};
    while (part < 3) {
      if (!rows.Next(finals[part], chunk, payload)) {
        ++part;
        continue;
      }
      const int64_t row_bytes = wire::TensorRowBytes(spec, chunk.tensor());
      ASSERT_EQ(static_cast<int64_t>(payload.size()), chunk.rows() * row_bytes);
      ASSERT_EQ(chunk.crc32c(), wire::Crc32c(payload));
      ASSERT_TRUE(chunk.payload().empty());
      ASSERT_LE(chunk.ByteSizeLong() + payload.size(), static_cast<size_t>(wire::kMaxMessageBytes));
      ASSERT_EQ(chunk.tokens_size(), listed ? chunk.rows() : 0);
      for (int64_t i = 0; i < chunk.rows(); ++i) {
        int64_t token = 0;
        std::memcpy(&token, payload.data() + i * row_bytes, sizeof(token));
        ASSERT_EQ(token, listed ? chunk.tokens(static_cast<int>(i)) : chunk.first_token() + i);
        const int64_t slot = listed ? spec.tokens - 1 - token : token;
        ASSERT_EQ(slot, rows.first_slot() + i);
        const bool is_out = chunk.tensor() == v1::TENSOR_OUT;
        ASSERT_FALSE(is_out && slot >= delivered_slots.begin && slot < delivered_slots.end);
        ++seen[chunk.tensor()][token];
      }
    }
  }
  EXPECT_EQ(seen.size(), want_lse ? 2u : 1u);
  for (const auto& [tensor, tokens] : seen) {
    EXPECT_EQ(static_cast<int64_t>(tokens.size()),
              spec.tokens - (tensor == v1::TENSOR_OUT ? already : 0));
    for (const auto& [token, times] : tokens) ASSERT_EQ(times, 1);
  }
}

TEST(OutputRows, NameEveryTokenOnce) {
  for (const int64_t tokens : {1, 2, 1000, 100'000}) {
    JobSpec spec = PlainSpec({.tokens = tokens, .dim = 8});
    for (const int workers : {1, 3}) {
      for (const bool causal : {false, true}) {  // causal shards are mirrored ranges
        spec.causal = causal;
        spec.ordering.reset();
        ExpectAllRows(spec, workers, true);
        spec.ordering = Ordering{.scope = OrderScope::kKv};
        ExpectAllRows(spec, workers, false);
        spec.ordering = Ordering{.scope = OrderScope::kQkv};
        ExpectAllRows(spec, workers, true);
      }
    }
  }
}

TEST(OutputRows, OmitDeliveredRows) {
  JobSpec spec = PlainSpec({.tokens = 5000, .dim = 8});
  spec.causal = true;  // mirrored ranges
  for (const RowSpan delivered : {RowSpan{0, 1}, {4999, 5000}, {0, 2500}, {100, 4900}}) {
    for (const int workers : {1, 3}) {
      spec.ordering.reset();
      ExpectAllRows(spec, workers, true, delivered);
      spec.ordering = Ordering{.scope = OrderScope::kQkv};
      ExpectAllRows(spec, workers, true, delivered);
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::server
