#include "tests/engine/expected_golden.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace hilbert_ring::testing {
namespace {

std::vector<double> Row(const std::vector<double>& values, int64_t token, int64_t width) {
  return {values.begin() + token * width, values.begin() + (token + 1) * width};
}

double OutBound(const GoldenCase& golden, DataType dtype, int64_t token, double out) {
  switch (dtype) {
    case DataType::kFloat32:
      return 1e-5 * std::abs(out) +
             std::max(2e-6, std::ldexp(golden.max_scores[token] * golden.max_value, -22));
    case DataType::kBFloat16:
      return std::ldexp(std::abs(out), -7) + std::ldexp(golden.max_value, -9);
    case DataType::kFloat16:
      return std::ldexp(std::abs(out), -10) + std::ldexp(golden.max_value, -12);
  }
  return 0;
}

}  // namespace

EngineInputs InputsOf(const GoldenCase& golden) {
  return {.q = golden.q,
          .k = golden.k,
          .v = golden.v,
          .coords = golden.coords,
          .bias_coords = golden.bias_coords};
}

ExpectedRows ExpectGolden(const GoldenCase& golden, DataType dtype) {
  const JobSpec& spec = golden.spec;
  ExpectedRows expected{.judged = spec.tokens};
  for (int64_t token = 0; token < spec.tokens; ++token) {
    expected.tokens.push_back(token);
    auto& [row, tolerance] = expected.rows.emplace_back();
    row.out = Row(golden.out, token, spec.heads * spec.value_dim);
    row.lse = Row(golden.lse, token, spec.heads);
    for (const double out : row.out) {
      tolerance.out.push_back(OutBound(golden, dtype, token, out));
    }
    for (const double lse : row.lse) tolerance.lse.push_back(1e-5 * (1 + std::abs(lse)));
    tolerance.judged.assign(spec.heads, 1);
  }
  return expected;
}

absl::StatusOr<ExpectedRows> ExpectGoldenRows(const GoldenCase& golden, DataType dtype) {
  JobSpec spec = golden.spec;
  spec.dtype = dtype;
  const auto by_rows = ExpectRows(spec, InputsOf(golden));
  if (!by_rows.ok()) return by_rows.status();
  ExpectedRows expected = ExpectGolden(golden, dtype);
  for (int64_t token = 0; token < spec.tokens; ++token) {
    const RowTolerance& own = by_rows->rows[token].tolerance;
    RowTolerance& tolerance = expected.rows[token].tolerance;
    for (int64_t head = 0; head < spec.heads; ++head) {
      if (!own.judged[head]) continue;
      for (int64_t i = head * spec.value_dim; i < (head + 1) * spec.value_dim; ++i) {
        tolerance.out[i] = std::min(tolerance.out[i], own.out[i]);
      }
      tolerance.lse[head] = std::min(tolerance.lse[head], own.lse[head]);
    }
  }
  return expected;
}

}  // namespace hilbert_ring::testing
