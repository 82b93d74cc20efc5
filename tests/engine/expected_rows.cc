#include "tests/engine/expected_rows.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/order/permutation.h"
#include "engine/spec/numbers.h"

namespace hilbert_ring::testing {
namespace {

class FloatRows final : public RowSource {
 public:
  FloatRows(const std::vector<float>& values, int64_t width) : values_(values), width_(width) {}
  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    std::copy_n(values_.begin() + token * width_ + first, values.size(), values.begin());
  }

 private:
  const std::vector<float>& values_;
  const int64_t width_;
};

std::vector<double> Row(const std::vector<float>& values, int64_t token, int64_t width) {
  return {values.begin() + token * width, values.begin() + (token + 1) * width};
}

}  // namespace

absl::StatusOr<ExpectedRows> ExpectRows(const JobSpec& spec, const EngineInputs& inputs) {
  std::vector<int64_t> tokens(spec.tokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  return ExpectRows(spec, inputs, std::move(tokens));
}

absl::StatusOr<ExpectedRows> ExpectRows(const JobSpec& spec, const EngineInputs& inputs,
                                        std::vector<int64_t> tokens) {
  const auto order = Permutation::Make(spec, inputs.coords);
  if (!order.ok()) return order.status();
  const EngineInputs rounded = Rounded(spec, inputs);
  const FloatRows q(rounded.q, spec.heads * spec.head_dim);
  const FloatRows k(rounded.k, spec.kv_heads * spec.head_dim);
  const FloatRows v(rounded.v, spec.kv_heads * spec.value_dim);
  const FloatRows coordinates(rounded.bias_coords, BiasAxes(spec));
  ExpectedRows expected{.tokens = std::move(tokens)};
  for (const int64_t token : expected.tokens) {
    expected.rows.push_back(ExpectRow(spec, **order, token, q, k, v, &coordinates));
    expected.judged += expected.rows.back().tolerance.AllJudged();
  }
  return expected;
}

EngineInputs Rounded(const JobSpec& spec, EngineInputs inputs) {
  for (std::vector<float>* values : {&inputs.q, &inputs.k, &inputs.v}) {
    for (float& value : *values) {
      std::byte element[sizeof(float)];
      StoreElement(spec.dtype, element, 0, value);
      value = LoadElement(spec.dtype, element, 0);
    }
  }
  return inputs;
}

std::string Mismatch(const JobSpec& spec, const EngineResult& result,
                     const ExpectedRows& expected) {
  Deviation worst;
  const char* tensor = "";
  const auto note = [&](const RowDeviation& row, const char* of) {
    if (row.worst.excess <= std::max(1.0, worst.excess)) return;
    worst = row.worst;
    tensor = of;
  };
  for (size_t i = 0; i < expected.tokens.size(); ++i) {
    const int64_t token = expected.tokens[i];
    const ExpectedRow& row = expected.rows[i];
    note(OutDeviation(spec, token, row, Row(result.out, token, spec.heads * spec.value_dim)),
         "out");
    note(LseDeviation(token, row, Row(result.lse, token, spec.heads)), "lse");
  }
  if (worst.token < 0) return "";
  return absl::StrCat(tensor, " of token ", worst.token, ", head ", worst.head, ", dim ", worst.dim,
                      " is ", worst.actual, ", should be ", worst.expected, " within ",
                      worst.tolerance);
}

}  // namespace hilbert_ring::testing
