#include "server/worker/output_rows.h"

#include <algorithm>

#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

// Bytes of a listed token on the wire: 7 bits each, tokens are below 2^40.
constexpr int64_t kListedTokenBytes = 6;

// Outputs are queries' rows: under kKv their slots are tokens.
bool SlotsAreTokens(const JobSpec& spec) {
  return !spec.ordering || spec.ordering->scope == OrderScope::kKv;
}

}  // namespace

bool OutputRows::Next(v1::OutputChunk& chunk) {
  const std::vector<ShardRange>& ranges = plan_.shards.OfRank(rank_);
  if (range_ == ranges.size()) {
    if (tensor_ == TensorKind::kLse || !want_lse_) return false;
    tensor_ = TensorKind::kLse;
    range_ = 0;
    row_ = 0;
    if (ranges.empty()) return false;
  }
  const ShardRange& range = ranges[range_];
  const int64_t end = range.local_begin + range.size();
  const int64_t row_bytes =
      RowBytes(plan_.spec, tensor_) + (SlotsAreTokens(plan_.spec) ? 0 : kListedTokenBytes);
  const int64_t most = std::max<int64_t>(1, wire::kMaxPayloadBytes / row_bytes);
  const int64_t rows = std::min(most, end - row_);
  Fill(tensor_, row_, rows, chunk);
  if (SlotsAreTokens(plan_.spec)) chunk.set_first_token(range.begin + row_ - range.local_begin);
  row_ += rows;
  if (row_ == end) ++range_;
  return true;
}

void OutputRows::Fill(TensorKind tensor, int64_t first_row, int64_t rows,
                      v1::OutputChunk& chunk) const {
  chunk.set_tensor(tensor == TensorKind::kOut ? v1::TENSOR_OUT : v1::TENSOR_LSE);
  chunk.set_rows(rows);
  chunk.clear_first_token();
  chunk.clear_tokens();
  if (!SlotsAreTokens(plan_.spec)) {
    const auto tokens = store_.tokens().subspan(first_row, rows);
    chunk.mutable_tokens()->Add(tokens.begin(), tokens.end());
  }
  chunk.mutable_payload()->assign(reinterpret_cast<const char*>(store_.Row(tensor, first_row)),
                                  rows * RowBytes(plan_.spec, tensor));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
}

}  // namespace hilbert_ring::server
