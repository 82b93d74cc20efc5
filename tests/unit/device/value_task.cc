#include "tests/unit/device/value_task.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/spec/numbers.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows in the task's type.
std::vector<std::byte> Stored(DataType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * ElementBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

}  // namespace

ValueTask::ValueTask(DataType dtype, int64_t queries, int64_t keys, int64_t head_dim,
                     int64_t value_dim)
    : dtype(dtype),
      queries(queries),
      keys(keys),
      head_dim(head_dim),
      value_dim(value_dim),
      q(queries * head_dim),
      k(keys * head_dim),
      v(keys * value_dim) {}

float ValueTask::Rounded(double value) const {
  float element = 0;
  StoreElement(dtype, &element, 0, static_cast<float>(value));
  return LoadElement(dtype, &element, 0);
}

ValueResult Attend(Device& device, const ValueTask& task) {
  const std::vector<std::byte> q = Stored(task.dtype, task.q), k = Stored(task.dtype, task.k),
                               v = Stored(task.dtype, task.v);
  ValueResult result{.out = std::vector<float>(task.queries * task.value_dim),
                     .lse = std::vector<float>(task.queries)};
  const AttentionTask attention{.dtype = task.dtype,
                                .query_rows = task.queries,
                                .key_rows = task.keys,
                                .head_dim = task.head_dim,
                                .value_dim = task.value_dim,
                                .q = {q.data(), 0, task.head_dim},
                                .k = {k.data(), 0, task.head_dim},
                                .v = {v.data(), 0, task.value_dim},
                                .out = {result.out.data(), 0, task.value_dim},
                                .lse = {result.lse.data(), 0, 1},
                                .scale = task.scale,
                                .mask = task.causal ? Mask::kDiagonal : Mask::kNone};
  const absl::Status status = device.Attend({&attention, 1}, {}).status();
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

ValueResult AttendInParts(Device& device, const ValueTask& task, const std::vector<int64_t>& ends) {
  const std::vector<std::byte> q = Stored(task.dtype, task.q), k = Stored(task.dtype, task.k),
                               v = Stored(task.dtype, task.v);
  ValueResult result{.out = std::vector<float>(task.queries * task.value_dim),
                     .lse = std::vector<float>(task.queries, -kInfinity)};
  std::vector<float> sums(task.queries);
  const StateView state{.max = result.lse.data(), .sum = sums.data(), .row_stride = 1};
  const int64_t element = ElementBytes(task.dtype);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const AttentionTask attention{
        .dtype = task.dtype,
        .query_rows = task.queries,
        .key_rows = end - begin,
        .head_dim = task.head_dim,
        .value_dim = task.value_dim,
        .q = {q.data(), 0, task.head_dim},
        .k = {k.data() + begin * task.head_dim * element, 0, task.head_dim},
        .v = {v.data() + begin * task.value_dim * element, 0, task.value_dim},
        .result = Result::kMerge,
        .out = {result.out.data(), 0, task.value_dim},
        .state = state,
        .scale = task.scale,
        .mask = task.causal ? Mask::kDiagonal : Mask::kNone,
        .diagonal_shift = -begin};
    const absl::Status status = device.Attend({&attention, 1}, {}).status();
    EXPECT_TRUE(status.ok()) << status;
    begin = end;
  }
  const FinalizeTask finalize{.rows = task.queries,
                              .heads = 1,
                              .value_dim = task.value_dim,
                              .from = {result.out.data(), 0, task.value_dim},
                              .state = state,
                              .lse = {result.lse.data(), 0, 1},
                              .score_scale = task.scale};
  const absl::Status status = device.Finalize({&finalize, 1});
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

ExpectedRow Expect(const ValueTask& task, int64_t query) {
  std::vector<double> scores(task.keys, -kInfinity);
  ExpectedRow row{.out = std::vector<double>(task.value_dim),
                  .least = std::vector<double>(task.value_dim, kInfinity),
                  .greatest = std::vector<double>(task.value_dim, -kInfinity),
                  .magnitude = std::vector<double>(task.value_dim)};
  double top = -kInfinity;
  bool spoilt = false;
  for (int64_t j = 0; j < task.keys; ++j) {
    if (!task.Sees(query, j)) continue;
    double dot = 0, terms = 0;
    for (int64_t x = 0; x < task.head_dim; ++x) {
      const double term = double{task.q[query * task.head_dim + x]} * task.k[j * task.head_dim + x];
      dot += term;
      terms += std::abs(term * task.scale);
    }
    scores[j] = dot * task.scale;
    spoilt |= std::isnan(scores[j]) || scores[j] == kInfinity;
    top = std::max(top, scores[j]);
    row.terms = std::max(row.terms, terms);
  }
  double sum = 0;
  for (int64_t j = 0; j < task.keys && !spoilt; ++j) {
    if (!task.Sees(query, j)) continue;
    const double weight = top == -kInfinity ? 0 : std::exp(scores[j] - top);
    sum += weight;
    for (int64_t x = 0; x < task.value_dim; ++x) {
      const double value = task.v[j * task.value_dim + x];
      row.sees_weightless_odd_value |= scores[j] == -kInfinity && !std::isfinite(value);
      row.out[x] += weight * value;
      row.magnitude[x] += weight * std::abs(value);
      row.least[x] = std::min(row.least[x], value);
      row.greatest[x] = std::max(row.greatest[x], value);
    }
  }
  row.lse = spoilt ? NAN : top + std::log(sum);
  for (int64_t x = 0; x < task.value_dim; ++x) {
    row.out[x] = spoilt ? NAN : sum == 0 ? 0.0 : row.out[x] / sum;
    row.magnitude[x] /= sum;
  }
  if (!spoilt && sum == 0) row.lse = -kInfinity;
  return row;
}

}  // namespace hilbert_ring
