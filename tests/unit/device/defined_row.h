// One row and head of an attention task by the definition, in float64, NaN and infinities included,
// as tests/golden/attention_oracle.py has it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace hilbert_ring {

// What the row sees.
struct RowInputs {
  double scale = 1;
  std::vector<double> query;         // [head_dim]
  std::vector<double> keys, values;  // [seen, head_dim], [seen, value_dim]
  int64_t value_dim = 0;
};

struct DefinedRow {
  std::vector<double> out;
  std::vector<double> magnitude;        // softmax-weighted |value|
  std::vector<double> deviation;        // softmax-weighted |value - out|
  std::vector<double> least, greatest;  // of the values seen
  double lse = -std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();  // the greatest score
  double max_score = 0;                                    // the greatest |score|
  double terms = 0;  // the greatest sum of |scale q k| over the dims of a score
  // A key of score -infinity whose value is not finite: 0 times that is NaN.
  bool sees_weightless_odd_value = false;
};

DefinedRow DefineRow(const RowInputs& inputs);

}  // namespace hilbert_ring
