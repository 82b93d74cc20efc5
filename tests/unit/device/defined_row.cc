#include "tests/unit/device/defined_row.h"

#include <algorithm>
#include <cmath>

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// [seen]
std::vector<double> Scores(const RowInputs& inputs, int64_t seen, DefinedRow& row) {
  const auto head_dim = static_cast<int64_t>(inputs.query.size());
  std::vector<double> scores(seen);
  for (int64_t j = 0; j < seen; ++j) {
    double dot = 0, terms = 0;
    for (int64_t x = 0; x < head_dim; ++x) {
      const double term = inputs.query[x] * inputs.keys[j * head_dim + x];
      dot += term;
      terms += std::abs(term * inputs.scale);
    }
    scores[j] = dot * inputs.scale;
    double error = 0;
    if (inputs.softcap > 0) {
      scores[j] = inputs.softcap * std::tanh(scores[j] / inputs.softcap);
      error += 8 * std::abs(scores[j]);
    }
    if (!inputs.biases.empty()) {
      scores[j] -= inputs.biases[j];
      error += 4 * (std::abs(inputs.biases[j]) + std::abs(scores[j]));
    }
    row.change_error = std::max(row.change_error, 0x1p-24 * error);
    row.terms = std::max(row.terms, terms);
    row.max_score = std::max(row.max_score, std::abs(scores[j]));
    row.most = std::max(row.most, scores[j]);
  }
  return scores;
}

}  // namespace

DefinedRow DefineRow(const RowInputs& inputs) {
  const int64_t dim = inputs.value_dim;
  const auto seen = static_cast<int64_t>(inputs.values.size()) / dim;
  DefinedRow row{.out = std::vector<double>(dim),
                 .magnitude = std::vector<double>(dim),
                 .deviation = std::vector<double>(dim),
                 .least = std::vector<double>(dim, kInfinity),
                 .greatest = std::vector<double>(dim, -kInfinity)};
  const std::vector<double> scores = Scores(inputs, seen, row);
  bool spoilt = false;
  for (int64_t j = 0; j < seen; ++j) {
    spoilt = spoilt || std::isnan(scores[j]) || scores[j] == kInfinity;
    for (int64_t x = 0; x < dim; ++x) {
      const double value = inputs.values[j * dim + x];
      row.least[x] = std::min(row.least[x], value);
      row.greatest[x] = std::max(row.greatest[x], value);
      row.sees_weightless_odd_value |= scores[j] == -kInfinity && !std::isfinite(value);
    }
  }
  if (spoilt) {
    row.lse = kNaN;
    row.out.assign(dim, kNaN);
    return row;
  }
  if (row.most == -kInfinity) return row;
  double sum = 0;
  for (int64_t j = 0; j < seen; ++j) {
    const double weight = std::exp(scores[j] - row.most);
    sum += weight;
    for (int64_t x = 0; x < dim; ++x) {
      row.out[x] += weight * inputs.values[j * dim + x];
      row.magnitude[x] += weight * std::abs(inputs.values[j * dim + x]);
    }
  }
  for (double& x : row.out) x /= sum;
  for (double& x : row.magnitude) x /= sum;
  for (int64_t j = 0; j < seen; ++j) {
    const double weight = std::exp(scores[j] - row.most) / sum;
    for (int64_t x = 0; x < dim; ++x) {
      row.deviation[x] += weight * std::abs(inputs.values[j * dim + x] - row.out[x]);
    }
  }
  row.lse = row.most + std::log(sum);
  return row;
}

}  // namespace hilbert_ring
