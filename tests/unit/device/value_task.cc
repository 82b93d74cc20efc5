#include "tests/unit/device/value_task.h"

#include <limits>
#include <span>

#include "absl/strings/match.h"
#include "engine/spec/numbers.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::byte> Stored(DataType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * ElementBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

}  // namespace

double WeightRoundingOf(const std::string& kernel, DataType dtype) {
  if (dtype == DataType::kFloat32) return 0;
  const bool gpu = absl::StartsWith(kernel, "cuda/");
  if (!gpu && !absl::StrContains(kernel, "bf16")) return 0;
  return dtype == DataType::kBFloat16 ? 0x1p-8 : 0x1p-11;
}

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

DefinedRow Expect(const ValueTask& task, int64_t query) {
  const auto row = [](const std::vector<float>& rows, int64_t i, int64_t dim) {
    return std::span(rows).subspan(i * dim, dim);
  };
  const auto q = row(task.q, query, task.head_dim);
  RowInputs inputs{.scale = task.scale, .query = {q.begin(), q.end()}, .value_dim = task.value_dim};
  for (int64_t j = 0; j < task.keys; ++j) {
    if (!task.Sees(query, j)) continue;
    const auto k = row(task.k, j, task.head_dim), v = row(task.v, j, task.value_dim);
    inputs.keys.insert(inputs.keys.end(), k.begin(), k.end());
    inputs.values.insert(inputs.values.end(), v.begin(), v.end());
  }
  return DefineRow(inputs);
}

}  // namespace hilbert_ring
