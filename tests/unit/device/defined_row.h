// A row and head of an attention task by the definition, in float64: see attention_oracle.py.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace hilbert_ring {

// The query of a row, and the keys and values that it sees.
struct RowInputs {
  double scale = 1;
  double softcap = 0;                // 0: none
  std::vector<double> query;         // [head_dim]
  std::vector<double> keys, values;  // [seen, head_dim], [seen, value_dim]
  std::vector<double> biases;        // [seen], subtracted from scores; or empty
  int64_t value_dim = 0;
};

struct DefinedRow {
  std::vector<double> out;
  std::vector<double> magnitude;        // softmax-weighted |value|
  std::vector<double> deviation;        // softmax-weighted |value - out|
  std::vector<double> least, greatest;  // of the seen values
  double lse = -std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();  // the greatest score
  double max_score = 0;                                    // the greatest |score|
  double change_error = 0;  // the greatest rounding error of softcap and bias
  double terms = 0;         // the greatest sum of |scale q k| over the dims of a score
  // A key of score -infinity has a value that is not finite: 0 times it is NaN.
  bool sees_weightless_odd_value = false;
};

DefinedRow DefineRow(const RowInputs& inputs);

}  // namespace hilbert_ring
