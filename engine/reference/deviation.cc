#include "engine/reference/deviation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void Note(Deviation deviation, RowDeviation& row) {
  deviation.error =
      deviation.actual == deviation.expected ? 0 : std::abs(deviation.actual - deviation.expected);
  if (std::isnan(deviation.error)) deviation.error = kInfinity;
  deviation.excess = deviation.error == 0          ? 0
                     : std::isinf(deviation.error) ? kInfinity
                                                   : deviation.error / deviation.tolerance;
  row.max_error = std::max(row.max_error, deviation.error);
  if (row.worst.token < 0 || deviation.excess > row.worst.excess) row.worst = deviation;
}

}  // namespace

RowDeviation OutDeviation(const JobSpec& spec, int64_t token, const ReferenceRow& expected,
                          std::span<const double> actual) {
  RowDeviation row;
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    Note({.token = token,
          .head = place / spec.value_dim,
          .dim = place % spec.value_dim,
          .actual = actual[i],
          .expected = expected.out[i],
          .tolerance = OutTolerance(spec.dtype, expected.out[i], expected.max_abs_score,
                                    expected.max_abs_value)},
         row);
  }
  return row;
}

RowDeviation LseDeviation(int64_t token, const ReferenceRow& expected,
                          std::span<const double> actual) {
  RowDeviation row;
  for (size_t head = 0; head < actual.size(); ++head) {
    Note({.token = token,
          .head = static_cast<int64_t>(head),
          .actual = actual[head],
          .expected = expected.lse[head],
          .tolerance = LseTolerance(expected.lse[head])},
         row);
  }
  return row;
}

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

}  // namespace hilbert_ring
