#include "client/cpp/verify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "engine/order/permutation.h"
#include "engine/reference/attention_reference.h"

namespace hilbert_ring::client {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
T Load(const std::byte* begin, int64_t index) {
  T value;
  std::memcpy(&value, begin + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = fraction == 0 ? kInfinity : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double BFloat16ToDouble(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// Numbers [tokens, width] of a file of Q, K, V, OUT or LSE: 16-bit integers hold bfloat16.
class NpyRows : public RowSource {
 public:
  explicit NpyRows(const NpyFile& file) : file_(file), width_(1) {
    for (size_t axis = 1; axis < file.shape().size(); ++axis) width_ *= file.shape()[axis];
  }

  int64_t width() const { return width_; }

  void Read(int64_t token, std::span<double> values) const override {
    const int64_t first = token * width_;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = Element(first + static_cast<int64_t>(i));
    }
  }

 private:
  double Element(int64_t index) const {
    switch (file_.type()) {
      case NpyType::kFloat64:
        return Load<double>(file_.data(), index);
      case NpyType::kFloat32:
        return Load<float>(file_.data(), index);
      case NpyType::kFloat16:
        return HalfToDouble(Load<uint16_t>(file_.data(), index));
      default:
        return BFloat16ToDouble(Load<uint16_t>(file_.data(), index));
    }
  }

  const NpyFile& file_;
  int64_t width_;
};

// Looks through the whole file, in blocks whose memory is given back.
void CountNotFinite(const NpyFile& file, double allowed, VerifyFigures& figures) {
  const NpyRows rows(file);
  const int64_t tokens = file.shape()[0];
  const int64_t row_bytes = rows.width() * NpyItemBytes(file.type());
  std::vector<double> row(static_cast<size_t>(rows.width()));
  for (int64_t token = 0; token < tokens; ++token) {
    rows.Read(token, row);
    for (const double value : row) {
      if (std::isfinite(value) || value == allowed) continue;
      if (figures.not_finite++ == 0) figures.first_not_finite_token = token;
    }
    constexpr int64_t kBlockBytes = 8 << 20;
    if ((token + 1) * row_bytes / kBlockBytes != token * row_bytes / kBlockBytes) {
      file.Release(std::max<int64_t>(0, token * row_bytes - kBlockBytes), token * row_bytes);
    }
  }
}

void Note(Deviation deviation, VerifyFigures& figures) {
  // Equal infinities are no error; NaN is one without bound.
  deviation.error =
      deviation.actual == deviation.expected ? 0 : std::abs(deviation.actual - deviation.expected);
  if (std::isnan(deviation.error)) deviation.error = kInfinity;
  deviation.excess = deviation.error == 0          ? 0
                     : std::isinf(deviation.error) ? kInfinity
                                                   : deviation.error / deviation.tolerance;
  figures.max_error = std::max(figures.max_error, deviation.error);
  if (figures.worst.token < 0 || deviation.excess > figures.worst.excess) {
    figures.worst = deviation;
  }
}

void Merge(const VerifyFigures& part, VerifyFigures& whole) {
  whole.max_error = std::max(whole.max_error, part.max_error);
  const bool first = whole.worst.token < 0;
  if (part.worst.token >= 0 &&
      (first || part.worst.excess > whole.worst.excess ||
       (part.worst.excess == whole.worst.excess && part.worst.token < whole.worst.token))) {
    whole.worst = part.worst;
  }
}

struct RowFigures {
  VerifyFigures out;
  VerifyFigures lse;
};

RowFigures CheckRow(const VerifyInputs& inputs, const Permutation& order, int64_t token) {
  const JobSpec& spec = inputs.spec;
  const ReferenceRow expected = ReferenceAttentionRow(spec, order, token, NpyRows(inputs.q),
                                                      NpyRows(inputs.k), NpyRows(inputs.v));
  RowFigures figures;
  std::vector<double> actual(static_cast<size_t>(spec.heads * spec.value_dim));
  NpyRows(inputs.out).Read(token, actual);
  for (int64_t i = 0; i < spec.heads * spec.value_dim; ++i) {
    const double out = expected.out[static_cast<size_t>(i)];
    Note({.token = token,
          .head = i / spec.value_dim,
          .dim = i % spec.value_dim,
          .actual = actual[static_cast<size_t>(i)],
          .expected = out,
          .tolerance =
              OutTolerance(spec.dtype, out, expected.max_abs_score, expected.max_abs_value)},
         figures.out);
  }
  if (inputs.lse == nullptr) return figures;
  actual.resize(static_cast<size_t>(spec.heads));
  NpyRows(*inputs.lse).Read(token, actual);
  for (int64_t head = 0; head < spec.heads; ++head) {
    const double lse = expected.lse[static_cast<size_t>(head)];
    Note({.token = token,
          .head = head,
          .actual = actual[static_cast<size_t>(head)],
          .expected = lse,
          .tolerance = LseTolerance(lse)},
         figures.lse);
  }
  return figures;
}

}  // namespace

double OutTolerance(DataType dtype, double out, double max_abs_score, double max_abs_value) {
  switch (dtype) {
    case DataType::kBFloat16:
      return std::ldexp(std::abs(out), -7) + std::ldexp(max_abs_value, -9);
    case DataType::kFloat16:
      return std::ldexp(std::abs(out), -10) + std::ldexp(max_abs_value, -12);
    case DataType::kFloat32:
      break;
  }
  return 1e-5 * std::abs(out) + std::max(2e-6, std::ldexp(max_abs_score * max_abs_value, -22));
}

double LseTolerance(double lse) { return 1e-5 * (1 + std::abs(lse)); }

std::vector<int64_t> SampleTokens(int64_t tokens, int64_t rows, uint64_t seed) {
  std::vector<int64_t> sample;
  if (rows >= tokens) {
    for (int64_t token = 0; token < tokens; ++token) sample.push_back(token);
    return sample;
  }
  std::set<int64_t> drawn;
  if (rows >= 2) drawn = {0, tokens - 1};
  std::mt19937_64 random(seed);
  // Whichever is fewer is drawn, the rows that are in or those that are left out, so that few draws
  // repeat.
  if (rows <= tokens / 2) {
    while (static_cast<int64_t>(drawn.size()) < rows) {
      drawn.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(tokens)));
    }
  } else {
    std::set<int64_t> left_out;
    while (static_cast<int64_t>(left_out.size()) < tokens - rows) {
      const int64_t token = static_cast<int64_t>(random() % static_cast<uint64_t>(tokens));
      if (!drawn.contains(token)) left_out.insert(token);
    }
    for (int64_t token = 0; token < tokens; ++token) {
      if (!left_out.contains(token)) drawn.insert(token);
    }
  }
  sample.assign(drawn.begin(), drawn.end());
  return sample;
}

absl::StatusOr<VerifyResult> Verify(const VerifyInputs& inputs, const VerifyOptions& options) {
  std::vector<int64_t> coords;
  if (inputs.coordinates != nullptr) coords = inputs.coordinates->All();
  const absl::StatusOr<std::shared_ptr<const Permutation>> order =
      Permutation::Make(inputs.spec, coords);
  if (!order.ok()) return order.status();

  const std::vector<int64_t> sample = SampleTokens(inputs.spec.tokens, options.rows, options.seed);
  std::vector<RowFigures> rows(sample.size());
  std::atomic<size_t> next = 0;
  const auto check_rows = [&] {
    for (size_t i = next++; i < sample.size(); i = next++) {
      rows[i] = CheckRow(inputs, **order, sample[i]);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 1; thread < options.threads; ++thread) threads.emplace_back(check_rows);
    check_rows();
  }

  VerifyResult result{.rows = static_cast<int64_t>(sample.size())};
  if (inputs.lse != nullptr) result.lse.emplace();
  for (const RowFigures& row : rows) {
    Merge(row.out, result.out);
    if (result.lse) Merge(row.lse, *result.lse);
  }
  CountNotFinite(inputs.out, 0, result.out);  // 0 is finite: nothing else is allowed
  if (inputs.lse != nullptr) CountNotFinite(*inputs.lse, -kInfinity, *result.lse);
  return result;
}

}  // namespace hilbert_ring::client
