#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/order/permutation.h"
#include "engine/reference/attention_reference.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct ReferenceResult {
  std::vector<double> out;  // [tokens, heads, value_dim]
  std::vector<double> lse;  // [tokens, heads]
};

class SpanSource final : public RowSource {
 public:
  SpanSource(std::span<const double> values, int64_t width) : values_(values), width_(width) {}
  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    std::copy_n(values_.begin() + token * width_ + first, values.size(), values.begin());
  }

 private:
  std::span<const double> values_;
  int64_t width_;
};

// q [tokens, heads, head_dim], k [tokens, kv_heads, head_dim], v [tokens, kv_heads, value_dim];
// coords and bias_coords [tokens, axes] or empty. The spec must be valid.
inline absl::StatusOr<ReferenceResult> ReferenceAttention(
    const JobSpec& spec, std::span<const double> q, std::span<const double> k,
    std::span<const double> v, std::span<const int64_t> coords,
    std::span<const double> bias_coords = {}) {
  auto order = Permutation::Make(spec, coords);
  if (!order.ok()) return order.status();
  const SpanSource q_rows(q, spec.heads * spec.head_dim);
  const SpanSource k_rows(k, spec.kv_heads * spec.head_dim);
  const SpanSource v_rows(v, spec.kv_heads * spec.value_dim);
  const SpanSource coordinates(bias_coords, BiasAxes(spec));
  ReferenceResult result;
  for (int64_t token = 0; token < spec.tokens; ++token) {
    const ReferenceRow row =
        ReferenceAttentionRow(spec, **order, token, q_rows, k_rows, v_rows, &coordinates);
    result.out.insert(result.out.end(), row.out.begin(), row.out.end());
    result.lse.insert(result.lse.end(), row.lse.begin(), row.lse.end());
  }
  return result;
}

}  // namespace hilbert_ring
