#include "tests/unit/device/attention_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t Between(std::mt19937_64& random, int64_t least, int64_t greatest) {
  return std::uniform_int_distribution<int64_t>(least, greatest)(random);
}

int64_t RandomDim(std::mt19937_64& random) {
  return 8 * (random() % 3 == 0 ? Between(random, 1, 32) : Between(random, 1, 9));
}

// Half of the distance between the type's neighbours around a value.
double Rounding(DataType dtype, double value) {
  switch (dtype) {
    case DataType::kFloat32:
      return 0;
    case DataType::kBFloat16:
      return std::abs(value) * 0x1p-8;
    case DataType::kFloat16:
      return std::max(std::abs(value) * 0x1p-11, 0x1p-25);
  }
  return 0;
}

struct Expected {
  std::vector<double> out;
  std::vector<double> deviation;  // sum of weight * |value - average value|, over all weights
  std::vector<double> magnitude;  // sum of weight * |value|, over all weights
  double lse = -kInfinity;
  double max_score = 0;
  double max_terms = 0;     // sum of |scale * q * k| over the dims of one score
  double change_error = 0;  // of a changed score
};

// The expected row and head, merged with the row before.
Expected Expect(const AttentionCase& c, int64_t b, int64_t i, int64_t h) {
  const CaseShape& s = c.shape;
  const DefinedRow row = c.Define(b, i, h);
  Expected e{.out = row.out,
             .deviation = row.deviation,
             .magnitude = row.magnitude,
             .lse = row.lse,
             .max_score = row.max_score,
             .max_terms = row.terms,
             .change_error = row.change_error};
  const double factor = s.result == Result::kWrite ? double{s.out_scale} : 1.0;
  const double old_lse = s.result == Result::kMerge ? c.OldLse(b, i, h) : -kInfinity;
  const double greatest = std::max(old_lse, row.lse);
  if (greatest == -kInfinity) return e;
  const double sum = std::exp(old_lse - greatest) + std::exp(row.lse - greatest);
  const double old_share = std::exp(old_lse - greatest) / sum;
  const double share = std::exp(row.lse - greatest) / sum;
  e.lse = greatest + std::log(sum);
  if (old_share > 0) e.max_score = std::max(e.max_score, std::abs(old_lse));
  for (int64_t x = 0; x < s.value_dim; ++x) {
    const double old = old_share > 0 ? c.old_out.Get(b, i, h, x) : 0;
    // The new part as a whole against the old row.
    const double apart = old_share > 0 ? 2 * std::abs(old - row.out[x]) : 0;
    e.out[x] = factor * (old_share * old + share * row.out[x]);
    e.deviation[x] = std::abs(factor) * share * (apart + row.deviation[x]);
    e.magnitude[x] = std::abs(factor) * (old_share * std::abs(old) + share * row.magnitude[x]);
  }
  return e;
}

}  // namespace

std::string CaseShape::Describe() const {
  return absl::StrCat("dtype ", static_cast<int>(dtype), " out ", static_cast<int>(out_dtype),
                      " result ", static_cast<int>(result), " mask ", static_cast<int>(mask),
                      " shift ", diagonal_shift, " left ", left, " right ", right, " softcap ",
                      softcap, " bias ", bias, " batch ", batch, " heads ", heads, " queries ",
                      query_rows, " keys ", key_rows, " dims ", head_dim, " ", value_dim, " scale ",
                      scale, " out_scale ", out_scale, " deviation ", deviation, " gap unit ",
                      gap_unit);
}

CaseShape RandomShape(std::mt19937_64& random) {
  CaseShape s;
  s.dtype = static_cast<DataType>(random() % 3);
  s.result = random() % 3 == 0 ? Result::kMerge : Result::kWrite;
  s.out_dtype =
      s.result == Result::kMerge ? DataType::kFloat32 : static_cast<DataType>(random() % 3);
  s.mask = static_cast<Mask>(random() % 3);
  s.head_dim = RandomDim(random);
  s.value_dim = random() % 2 == 0 ? s.head_dim : RandomDim(random);
  s.batch = random() % 3 == 0 ? Between(random, 2, 3) : 1;
  s.heads = random() % 2 == 0 ? Between(random, 2, 9) : 1;
  s.query_rows = random() % 2 == 0 ? Between(random, 0, 20) : Between(random, 21, 200);
  s.key_rows = random() % 2 == 0 ? Between(random, 0, 70) : Between(random, 71, 300);
  constexpr int64_t kProducts = 10'000'000;
  const int64_t width = s.batch * s.heads * (s.head_dim + s.value_dim);
  while (width * s.query_rows * s.key_rows > kProducts) {
    (s.query_rows > s.key_rows ? s.query_rows : s.key_rows) /= 2;
  }
  s.diagonal_shift = random() % 8 == 0 ? (random() % 2 == 0 ? std::numeric_limits<int64_t>::max()
                                                            : std::numeric_limits<int64_t>::min())
                                       : Between(random, -s.query_rows - 5, s.key_rows + 5);
  s.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  switch (random() % 10) {
    case 0:
      s.scale *= 100.0f;  // scores of several hundred
      break;
    case 1:
      s.scale = -s.scale;
      break;
    case 2:
      s.scale = 0.0f;
      break;
    default:
      break;
  }
  constexpr float kOutScales[] = {1.0f, 1.0f, 0.25f, 1.0f / 3};
  s.out_scale = kOutScales[random() % 4];
  s.gap_unit = random() % 2 == 0 ? 8 : 1;
  s.deviation = random() % 4 == 0 ? 4.0f : 1.0f;
  s.position_step = random() % 2 == 0 ? 1 : int64_t{1} << 30;
  if (random() % 3 == 0) s.left = Between(random, 0, 90);
  if (random() % 3 == 0) s.right = random() % 2 == 0 ? kUnbounded : Between(random, 0, 90);
  if (random() % 4 == 0) s.softcap = random() % 2 == 0 ? 0.5f : 30.0f;
  if (random() % 4 == 0) s.bias = random() % 2 == 0 ? 8.0f : -1000.0f;
  s.row_distance = random() % 2 == 0 ? 1 : 5;
  if (s.bias != 0) s.diagonal_shift = std::clamp<int64_t>(s.diagonal_shift, -1000, 1000);
  return s;
}

AttentionCase::AttentionCase(const CaseShape& s, std::mt19937_64& random)
    : shape(s),
      q(s.dtype, {s.batch, s.query_rows, s.heads, s.head_dim}, random, s.gap_unit),
      k(s.dtype, {s.batch, s.key_rows, 1, s.head_dim}, random, s.gap_unit),
      v(s.dtype, {s.batch, s.key_rows, 1, s.value_dim}, random, s.gap_unit),
      out(s.out_dtype, {s.batch, s.query_rows, s.heads, s.value_dim}, random, s.gap_unit),
      lse(DataType::kFloat32, {s.batch, s.query_rows, s.heads, 1}, random),
      row_max(DataType::kFloat32, {s.batch, s.query_rows, s.heads, 1}, random),
      row_sum(row_max) {
  q.FillNormal(s.deviation, random);
  k.FillNormal(s.deviation, random);
  v.FillNormal(1.0f, random);
  if (s.result == Result::kMerge) {
    out.FillNormal(1.0f, random);
    const bool changes = s.softcap > 0 || s.bias != 0;
    row_max.FillNormal(5.0f / (changes ? 1 : std::max(0.01f, std::abs(s.scale))), random);
    row_sum.Fill(1.0f);
    // Some rows hold the identity, like all rows at first.
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t i = 0; i < s.query_rows; ++i) {
        if (random() % 3 != 0) continue;
        for (int64_t h = 0; h < s.heads; ++h) {
          row_max.Set(b, i, h, 0, -std::numeric_limits<float>::infinity());
          row_sum.Set(b, i, h, 0, 0.0f);
          for (int64_t x = 0; x < s.value_dim; ++x) out.Set(b, i, h, x, 0.0f);
        }
      }
    }
  }
  old_out = out;
  old_max = row_max;
  old_sum = row_sum;
  const int64_t most = std::max(s.query_rows, s.key_rows);
  for (int64_t i = 0; i < s.batch * s.query_rows; ++i) {
    query_positions.push_back(Between(random, -most, most) * s.position_step);
  }
  for (int64_t j = 0; j < s.batch * s.key_rows; ++j) {
    key_positions.push_back(Between(random, -most, most) * s.position_step);
  }
  if (s.bias != 0) {
    // Distances without positions are taken from a shift that may be far away.
    const double greatest =
        s.mask == Mask::kPositions
            ? static_cast<double>(2 * most) * static_cast<double>(s.position_step)
            : (std::abs(static_cast<double>(s.diagonal_shift)) + static_cast<double>(2 * most)) *
                  static_cast<double>(s.row_distance);
    for (int64_t h = 0; h < s.heads; ++h) {
      slopes.push_back(static_cast<float>(s.bias / (greatest + 1) / static_cast<double>(h + 1)));
    }
  }
  if (random() % 2 == 0) {  // like without an ordering: many tiles are wholly masked
    std::sort(query_positions.begin(), query_positions.end());
    std::sort(key_positions.begin(), key_positions.end());
  }
}

AttentionTask AttentionCase::Task(int64_t begin, int64_t end) {
  AttentionTask task{
      .dtype = shape.dtype,
      .batch = shape.batch,
      .heads = shape.heads,
      .query_rows = shape.query_rows,
      .key_rows = end - begin,
      .head_dim = shape.head_dim,
      .value_dim = shape.value_dim,
      .q = q.ViewFrom(0),
      .k = k.ViewFrom(begin),
      .v = v.ViewFrom(begin),
      .result = shape.result,
      .out_dtype = shape.out_dtype,
      .out = out.View(),
      .lse = shape.result == Result::kWrite ? lse.Lse() : LseView{},
      .state = shape.result == Result::kMerge ? row_max.StateWith(row_sum) : StateView{},
      .scale = shape.scale,
      .out_scale = shape.out_scale,
      .change = {.softcap = shape.softcap,
                 .slopes = slopes.empty() ? nullptr : slopes.data(),
                 .row_distance = shape.row_distance},
      .mask = shape.mask,
      .diagonal_shift = begin == 0 ? shape.diagonal_shift : shape.diagonal_shift - begin,
      .left = shape.left,
      .right = shape.right};
  if (shape.mask == Mask::kPositions) {
    task.query_positions = {query_positions.data(), shape.query_rows, 1};
    task.key_positions = {key_positions.data() + begin, shape.key_rows, 1};
  }
  return task;
}

bool AttentionCase::Sees(int64_t batch, int64_t query, int64_t key) const {
  switch (shape.mask) {
    case Mask::kNone:
      return true;
    case Mask::kDiagonal: {
      const __int128 ahead = __int128{key} - query - shape.diagonal_shift;
      return -ahead <= shape.left && ahead <= shape.right;
    }
    case Mask::kPositions:
      return key_positions[batch * shape.key_rows + key] <=
             query_positions[batch * shape.query_rows + query];
  }
  return false;
}

double AttentionCase::Bias(int64_t batch, int64_t query, int64_t key, int64_t head) const {
  if (slopes.empty()) return 0;
  const int64_t apart = shape.mask == Mask::kPositions
                            ? key_positions[batch * shape.key_rows + key] -
                                  query_positions[batch * shape.query_rows + query]
                            : (key - query - shape.diagonal_shift) * shape.row_distance;
  return double{slopes[head]} * std::abs(static_cast<double>(apart));
}

double AttentionCase::Lse(int64_t batch, int64_t query, int64_t head) const {
  if (shape.result == Result::kWrite) return lse.Get(batch, query, head, 0);
  return StateLse(row_max, row_sum, batch, query, head);
}

double AttentionCase::OldLse(int64_t batch, int64_t query, int64_t head) const {
  return StateLse(old_max, old_sum, batch, query, head);
}

double AttentionCase::StateLse(const StridedArray& max, const StridedArray& sum, int64_t batch,
                               int64_t query, int64_t head) const {
  if (sum.Get(batch, query, head, 0) == 0) return -kInfinity;
  const bool changes = shape.softcap > 0 || !slopes.empty();
  return (changes ? 1 : std::abs(double{shape.scale})) * max.Get(batch, query, head, 0) +
         std::log(sum.Get(batch, query, head, 0));
}

std::vector<std::byte> AttentionCase::Written() const {
  std::vector<std::byte> bytes = out.bytes();
  for (const StridedArray* array : {&lse, &row_max, &row_sum}) {
    bytes.insert(bytes.end(), array->bytes().begin(), array->bytes().end());
  }
  return bytes;
}

DefinedRow AttentionCase::Define(int64_t batch, int64_t query, int64_t head) const {
  RowInputs inputs{.scale = shape.scale, .softcap = shape.softcap, .value_dim = shape.value_dim};
  for (int64_t x = 0; x < shape.head_dim; ++x) {
    inputs.query.push_back(q.Get(batch, query, head, x));
  }
  for (int64_t j = 0; j < shape.key_rows; ++j) {
    if (!Sees(batch, query, j)) continue;
    if (!slopes.empty()) inputs.biases.push_back(Bias(batch, query, j, head));
    for (int64_t x = 0; x < shape.head_dim; ++x) inputs.keys.push_back(k.Get(batch, j, 0, x));
    for (int64_t x = 0; x < shape.value_dim; ++x) inputs.values.push_back(v.Get(batch, j, 0, x));
  }
  return DefineRow(inputs);
}

std::string WhatIsWrong(const AttentionCase& c, const DeviceInfo& made_by) {
  const CaseShape& s = c.shape;
  const bool rounds_weights =
      s.dtype == DataType::kBFloat16 && absl::StrContains(made_by.kernel, "bf16");
  const double weight_rounding = rounds_weights ? 0x1p-8 / (1 - 0x1p-8) : 0;
  const double gpu_rounding = !absl::StartsWith(made_by.kernel, "cuda/") ? 0
                              : s.dtype == DataType::kBFloat16           ? 0x1p-8
                              : s.dtype == DataType::kFloat16            ? 0x1p-11
                                                                         : 0;
  int exponent = 0;
  const bool rounds_twice = absl::StrContains(made_by.kernel, "cudnn") &&
                            std::frexp(s.out_scale, &exponent) != 0.5f;  // else it is exact
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t i = 0; i < s.query_rows; ++i) {
      for (int64_t h = 0; h < s.heads; ++h) {
        const Expected e = Expect(c, b, i, h);
        const std::string where = absl::StrCat(" at batch ", b, " row ", i, " head ", h);
        const double lse = c.Lse(b, i, h);
        const double dot_rounding =
            4 * std::sqrt(static_cast<double>(s.head_dim)) * 0x1p-24 * e.max_terms + e.change_error;
        const double lse_allowed =
            1e-6 * (1 + std::abs(e.lse)) + 0x1p-23 * e.max_score + dot_rounding;
        if (!(lse == e.lse || std::abs(lse - e.lse) <= lse_allowed)) {
          return absl::StrCat("lse ", lse, ", expected ", e.lse, where);
        }
        for (int64_t x = 0; x < s.value_dim; ++x) {
          const double out = c.out.Get(b, i, h, x);
          double allowed = 2e-6 * e.magnitude[x] +
                           (2 * (dot_rounding + 4e-7) + weight_rounding) * e.deviation[x] +
                           gpu_rounding * e.magnitude[x];
          allowed += Rounding(s.out_dtype, std::abs(e.out[x]) + allowed);
          if (rounds_twice) allowed += Rounding(s.out_dtype, std::abs(e.out[x]) + allowed);
          if (e.lse == -kInfinity) allowed = 0;
          if (!(std::abs(out - e.out[x]) <= allowed)) {
            return absl::StrCat("out ", out, ", expected ", e.out[x], " within ", allowed, where,
                                " dim ", x);
          }
        }
      }
    }
  }
  if (!c.out.GapsAreUntouched()) return "wrote beside out";
  for (const StridedArray* array : {&c.lse, &c.row_max, &c.row_sum}) {
    if (!array->GapsAreUntouched()) return "wrote beside lse or the state";
  }
  return "";
}

}  // namespace hilbert_ring
