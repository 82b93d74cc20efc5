// The definition of attention's result in float64, written for clarity: a port of
// tests/golden/attention_oracle.py for tests and `hilbert-ring verify`.
//
// A row of out and its lse are NaN if the row sees a key with score NaN or +infinity; a score of
// -infinity has weight 0. A value that is not finite reaches only the rows that see it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Rows of data of any type and storage, read one at a time.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // values[i] = number first + i of row `token`, which has heads * dim numbers.
  virtual void Read(int64_t token, int64_t first, std::span<double> values) const = 0;
};

struct ReferenceRow {
  std::vector<double> out;  // [heads, value_dim]
  std::vector<double> lse;  // [heads]

  static constexpr int64_t kZeroKey = -1, kSink = -2;
  // The key or sink with the greatest score, and the weights relative to it.
  struct Top {
    double product = 0;        // q . k, not scaled; the score if ComparesScores(spec)
    int64_t token = kZeroKey;  // or kZeroKey or kSink
    double weights = 0;        // sum of exp(score - greatest score); 0: no key was seen
  };
  std::vector<Top> top;  // [heads]
};

// Returns whether softmaxes compare scores. Others compare products, times one scale.
inline bool ComparesScores(const JobSpec& spec) {
  return ChangesScores(spec) || !spec.sinks.empty();
}

// The score after the softcap; the score itself without one.
double Capped(const JobSpec& spec, double score);

// The part of a score that alibi takes away between the positions of a query and of a key; 0
// without alibi. coordinates: of keys, if biases measure them.
double Bias(const JobSpec& spec, int64_t head, int64_t query, int64_t key,
            const RowSource* coordinates);

// The factor of a softmax: 1 / branches if branches are averaged, else 1.
double OutShare(const JobSpec& spec);

// The result of one token, from only the rows that it sees, in an order of engine/order.
// coordinates: [keys, axes], if biases measure them.
class Permutation;
ReferenceRow ReferenceAttentionRow(const JobSpec& spec, const Permutation& order, int64_t token,
                                   const RowSource& q, const RowSource& k, const RowSource& v,
                                   const RowSource* coordinates = nullptr);

}  // namespace hilbert_ring
