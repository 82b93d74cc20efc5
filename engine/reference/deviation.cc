#include "engine/reference/deviation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hilbert_ring {
namespace {

void Note(Deviation deviation, RowDeviation& row) {
  const bool same = deviation.actual == deviation.expected ||
                    (std::isnan(deviation.actual) && std::isnan(deviation.expected));
  deviation.error = same ? 0 : std::abs(deviation.actual - deviation.expected);
  if (std::isnan(deviation.error)) deviation.error = std::numeric_limits<double>::infinity();
  deviation.excess = deviation.error == 0          ? 0
                     : std::isinf(deviation.error) ? std::numeric_limits<double>::infinity()
                                                   : deviation.error / deviation.tolerance;
  row.max_error = std::max(row.max_error, deviation.error);
  if (row.worst.token < 0 || deviation.excess > row.worst.excess) row.worst = deviation;
}

}  // namespace

ExpectedRow ExpectRow(const JobSpec& spec, const Permutation& order, int64_t token,
                      const RowSource& q, const RowSource& k, const RowSource& v,
                      const RowSource* coordinates) {
  ExpectedRow row{.row = ReferenceAttentionRow(spec, order, token, q, k, v, coordinates)};
  row.tolerance = ToleranceOfRow(spec, order, token, q, k, v, coordinates, row.row);
  return row;
}

RowDeviation OutDeviation(const JobSpec& spec, int64_t token, const ExpectedRow& expected,
                          std::span<const double> actual) {
  RowDeviation row;
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const int64_t head = place / spec.value_dim;
    if (!expected.tolerance.judged[head]) continue;
    Note({.token = token,
          .head = head,
          .dim = place % spec.value_dim,
          .actual = actual[i],
          .expected = expected.row.out[i],
          .tolerance = expected.tolerance.out[i]},
         row);
  }
  return row;
}

RowDeviation LseDeviation(int64_t token, const ExpectedRow& expected,
                          std::span<const double> actual) {
  RowDeviation row;
  for (size_t head = 0; head < actual.size(); ++head) {
    if (!expected.tolerance.judged[head]) continue;
    Note({.token = token,
          .head = static_cast<int64_t>(head),
          .actual = actual[head],
          .expected = expected.row.lse[head],
          .tolerance = expected.tolerance.lse[head]},
         row);
  }
  return row;
}

}  // namespace hilbert_ring
