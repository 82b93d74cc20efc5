// The definition of the result in float64: a port of tests/golden/attention_oracle.py for tests and
// for `hilbert-ring verify`. Clarity before speed.
//
// Values that are not finite follow IEEE arithmetic: a row of out and its lse are NaN where the row
// sees a key whose score is NaN or +infinity (a score of -infinity has weight 0), out is what the
// sum says where a value that it sees is not finite, and a row is never touched by what it does not
// see.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Rows of data in any type and anywhere (a mapped file, say), read one at a time.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // values[i] = number first + i of row `token`, which has heads * dim.
  virtual void Read(int64_t token, int64_t first, std::span<double> values) const = 0;
};

struct ReferenceRow {
  std::vector<double> out;  // [heads, value_dim]
  std::vector<double> lse;  // [heads]

  static constexpr int64_t kZeroKey = -1;
  // The key of the greatest score, and what its softmax weighs beside it.
  struct Top {
    double product = 0;        // q . k, not scaled
    int64_t token = kZeroKey;  // or kZeroKey
    double weights = 0;        // sum of exp(score - greatest score); 0: nothing was seen
  };
  std::vector<Top> top;  // [heads]
};

// What a softmax is multiplied by: one part of the branches where they are averaged, else 1.
double OutShare(const JobSpec& spec);

// The result of one token, from the rows that it sees alone. `slots` and `tokens` of the order come
// from engine/order (the order is stored or evaluated there, and tested against the oracle on its
// own).
class Permutation;
ReferenceRow ReferenceAttentionRow(const JobSpec& spec, const Permutation& order, int64_t token,
                                   const RowSource& q, const RowSource& k, const RowSource& v);

}  // namespace hilbert_ring
