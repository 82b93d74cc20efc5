// A JobSpec describes an attention job, without its data.
//
// The terms (branch, mixing, offset, tail, ordering, slot) are defined in docs/design.md; the
// result is defined by tests/golden/attention_oracle.py and its C++ port in engine/reference.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace hilbert_ring {

enum class DataType { kFloat32, kBFloat16, kFloat16 };

int64_t ElementBytes(DataType dtype);

enum class Mixing {
  kHeadGroups,  // heads are split among the branches
  kLse,         // every head runs every branch; branches are mixed by log-sum-exp
};

// The keys of a segment with less than its full length.
enum class Tail {
  kMask,  // only tokens that exist
  kZero,  // zero keys make up ceil(min(w, n) / r) rows (ignored when causal, as in the definition)
};

enum class Curve { kHilbert, kMorton };

enum class OrderScope {
  kQkv,  // queries, keys and values are ordered alike
  kKv,   // keys and values only: a query's slot is its token
};

// A space-filling-curve order of each sequence: of its implicit square unless window, grid or
// coordinates (at most one) are set.
struct Ordering {
  Curve curve = Curve::kHilbert;
  OrderScope scope = OrderScope::kQkv;
  int64_t window = 0;         // > 0: each run of `window` tokens is ordered on its own
  std::vector<int64_t> grid;  // [rows, cols] or [planes, rows, cols]; empty when not a grid
  int coordinate_axes = 0;    // 2 or 3: the job sends coordinates [tokens, axes]; 0: no coordinates
  bool operator==(const Ordering&) const = default;
};

// A (segment length, dilation rate) pair of the pattern, in slots.
struct Branch {
  int64_t segment = 0;   // w >= 1; capped at the sequence's length
  int64_t dilation = 1;  // r >= 1
  bool operator==(const Branch&) const = default;
};

inline constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

// Keys that a query sees, by the distance of their original positions. Absent: without a bound.
struct Window {
  std::optional<int64_t> left;   // a query at p sees keys from p - left on; >= 0
  std::optional<int64_t> right;  // up to p + right; >= 0
  bool operator==(const Window&) const = default;
};

// A bias of scores: minus the head's slope times the distance of the two original positions, or the
// Euclidean distance of their coordinates: 0 to and from a position with a NaN coordinate.
struct Alibi {
  std::vector<double> slopes;  // [heads]
  int coordinate_axes = 0;     // 2 or 3: the job sends coordinates [keys, axes]; 0: by position
  bool operator==(const Alibi&) const = default;
};

// The position of query i of a sequence of n queries and m keys.
enum class Align {
  kEnd,    // i + m - n: fewer queries are the last rows of the job with as many queries as keys
  kStart,  // i
};

struct JobSpec {
  int64_t tokens = 0;                 // queries of all sequences together
  std::optional<int64_t> key_tokens;  // keys of all sequences; absent: as many as queries
  int64_t heads = 0;
  int64_t kv_heads = 0;   // divides heads; query head h reads kv head h * kv_heads / heads
  int64_t head_dim = 0;   // of queries and keys: 8 to 256 in steps of 8
  int64_t value_dim = 0;  // of values and outputs: 8 to 256 in steps of 8
  DataType dtype = DataType::kFloat32;
  std::vector<Branch> branches;
  Mixing mixing = Mixing::kHeadGroups;
  bool causal = false;
  std::optional<double> scale;  // of the scores; 1 / sqrt(head_dim) when absent
  Tail tail = Tail::kMask;
  bool average_groups = true;  // kHeadGroups: outputs are divided by the number of branches
  std::optional<Ordering> ordering;
  std::vector<int64_t> sequence_lengths;      // of queries; empty: one sequence of `tokens`
  std::vector<int64_t> key_sequence_lengths;  // empty: those of queries, or one of `key_tokens`
  Align align = Align::kEnd;

  // Changes of a score, in this order: softcap, alibi, causal mask and window.
  std::optional<double> softcap;  // c > 0: a score s becomes c * tanh(s / c)
  std::optional<Alibi> alibi;
  std::optional<Window> window;

  // [heads], or empty. A logit that takes part in the softmax of each of the head's rows, once,
  // with a value of 0.
  std::vector<double> sinks;

  bool operator==(const JobSpec&) const = default;

  double Scale() const;
};

// Upper limits of a spec. A service may set lower ones.
struct SpecLimits {
  int64_t max_tokens = int64_t{1} << 40;
  int64_t max_heads = 4096;
  int64_t max_branches = 64;
  int64_t max_sequences = int64_t{1} << 20;
};

// OK, INVALID_ARGUMENT, or OUT_OF_RANGE (over a limit). The message names field, value and limit.
absl::Status Validate(const JobSpec& spec, const SpecLimits& limits = {});

inline int64_t KeyTokens(const JobSpec& spec) { return spec.key_tokens.value_or(spec.tokens); }
inline int64_t MostRows(const JobSpec& spec) {
  return KeyTokens(spec) > spec.tokens ? KeyTokens(spec) : spec.tokens;
}

// Slots and tokens [begin, begin + length) of the job.
struct Sequence {
  int64_t begin = 0;
  int64_t length = 0;
  bool operator==(const Sequence&) const = default;
};

// Keys of the sequences that have some: slots are those of keys.
std::vector<Sequence> Sequences(const JobSpec& spec);

// Queries and keys of one sequence; either may be empty. Query i of the sequence has the position
// i + shift among its keys.
struct SequencePair {
  Sequence queries, keys;
  int64_t shift = 0;
};

std::vector<SequencePair> SequencePairs(const JobSpec& spec);

// Visits the pairs one after the other, without a list of them:
// `for (SequencePair pair; cursor.Next(pair);)`.
class SequenceCursor {
 public:
  explicit SequenceCursor(const JobSpec& spec);  // the spec outlives it

  bool Next(SequencePair& pair);  // false after the last

 private:
  const JobSpec& spec_;
  const std::vector<int64_t>& keys_;  // empty: one sequence
  size_t next_ = 0;
  int64_t query_ = 0, key_ = 0;
};

int64_t LongestSequence(const JobSpec& spec);  // in keys

// Returns whether a sequence has another number of queries than of keys.
bool IsRectangular(const JobSpec& spec);

// The axes of the coordinates that biases measure; 0: none.
inline int BiasAxes(const JobSpec& spec) { return spec.alibi ? spec.alibi->coordinate_axes : 0; }

// The greatest magnitude of such a coordinate: squares of differences are finite in float32.
inline constexpr float kMostBiasCoordinate = 0x1p60f;

// Returns whether kernels compare original positions, because slots are in another order.
inline bool NeedsPositions(const JobSpec& spec) {
  const bool by_position = spec.causal || (spec.alibi && BiasAxes(spec) == 0);
  return by_position && spec.ordering.has_value();
}

// Returns whether queries lie at other places than the keys of their positions, so that a rank has
// coordinates of both.
inline bool HasQueryCoordinates(const JobSpec& spec) {
  return BiasAxes(spec) > 0 &&
         (IsRectangular(spec) || (spec.ordering && spec.ordering->scope == OrderScope::kKv));
}

// Returns whether scores change between their scale and their mask.
inline bool ChangesScores(const JobSpec& spec) { return spec.softcap || spec.alibi; }

// Returns whether the window hides a key of some length.
inline bool HasWindow(const JobSpec& spec) {
  return spec.window && (spec.window->left || spec.window->right);
}

// Returns whether a row and head has partial results of several branches.
inline bool MixesBranches(const JobSpec& spec) {
  return spec.mixing == Mixing::kLse && spec.branches.size() > 1;
}

inline bool AddsZeroKeys(const JobSpec& spec) { return spec.tail == Tail::kZero && !spec.causal; }

}  // namespace hilbert_ring
