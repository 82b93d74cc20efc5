#include "engine/spec/job_spec.h"

#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/field_error.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kMinDim = 8;
constexpr int64_t kMaxDim = 256;
constexpr int64_t kDimStep = 8;

// Above every sequence, and low enough that a slot plus a segment or dilation is below 2^63.
constexpr int64_t kMaxSegmentOrDilation = int64_t{1} << 62;

// A curve's key has 64 bits: 32 an axis in two dimensions, 21 in three.
constexpr int64_t kMaxGridSide2d = int64_t{1} << 32;
constexpr int64_t kMaxGridSide3d = int64_t{1} << 21;

absl::Status Wrong(absl::string_view field, const std::string& message) {
  return WithField(absl::InvalidArgumentError(message), field);
}

absl::Status AtLeast(absl::string_view field, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return WithField(
      absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be at least ", least)),
      field, least);
}

absl::Status AtMost(absl::string_view field, int64_t value, int64_t limit) {
  if (value <= limit) return absl::OkStatus();
  return WithField(
      absl::OutOfRangeError(absl::StrCat(field, " is ", value, ", must be at most ", limit)), field,
      limit);
}

absl::Status InRange(absl::string_view field, int64_t value, int64_t least, int64_t limit) {
  RETURN_IF_ERROR(AtLeast(field, value, least));
  return AtMost(field, value, limit);
}

absl::Status IsFloat(absl::string_view field, double value) {
  if (std::isfinite(static_cast<float>(value))) return absl::OkStatus();
  return Wrong(field, absl::StrCat(field, " is ", value,
                                   ", must be a finite number of float32, from -3.40282e+38 to "
                                   "3.40282e+38"));
}

absl::Status ValidateDim(absl::string_view field, int64_t value) {
  if (value >= kMinDim && value <= kMaxDim && value % kDimStep == 0) return absl::OkStatus();
  return Wrong(field, absl::StrCat(field, " is ", value, ", must be ", kMinDim, " to ", kMaxDim,
                                   " in steps of ", kDimStep));
}

absl::Status ValidateHeads(const JobSpec& spec, const SpecLimits& limits) {
  RETURN_IF_ERROR(InRange("heads", spec.heads, 1, limits.max_heads));
  RETURN_IF_ERROR(AtLeast("kv_heads", spec.kv_heads, 1));
  if (spec.heads % spec.kv_heads != 0) {
    return Wrong("kv_heads",
                 absl::StrCat("kv_heads is ", spec.kv_heads, ", must divide heads ", spec.heads));
  }
  RETURN_IF_ERROR(ValidateDim("head_dim", spec.head_dim));
  return ValidateDim("value_dim", spec.value_dim);
}

absl::Status ValidateBranches(const JobSpec& spec, const SpecLimits& limits) {
  const auto count = static_cast<int64_t>(spec.branches.size());
  if (absl::Status s =
          InRange("the number of branches (segments, dilations)", count, 1, limits.max_branches);
      !s.ok()) {
    return WithField(s, "segments");
  }
  for (int64_t b = 0; b < count; ++b) {
    const Branch& branch = spec.branches[b];
    RETURN_IF_ERROR(
        InRange(absl::StrCat("segments[", b, "]"), branch.segment, 1, kMaxSegmentOrDilation));
    RETURN_IF_ERROR(
        InRange(absl::StrCat("dilations[", b, "]"), branch.dilation, 1, kMaxSegmentOrDilation));
  }
  return absl::OkStatus();
}

// The keys of packed sequences; empty: one sequence has all.
const std::vector<int64_t>& PackedKeys(const JobSpec& spec) {
  const bool of_queries = spec.key_sequence_lengths.empty() && KeyTokens(spec) == spec.tokens;
  return of_queries ? spec.sequence_lengths : spec.key_sequence_lengths;
}

absl::Status ValidateLengths(absl::string_view name, const std::vector<int64_t>& lengths,
                             absl::string_view total_name, int64_t total,
                             const SpecLimits& limits) {
  const auto count = static_cast<int64_t>(lengths.size());
  if (absl::Status s = AtMost(absl::StrCat("the number of ", name), count, limits.max_sequences);
      !s.ok()) {
    return WithField(s, name);
  }
  int64_t rest = total;
  for (int64_t i = 0; i < count; ++i) {
    if (lengths[i] < 0 || lengths[i] > rest) {
      const std::string field = absl::StrCat(name, "[", i, "]");
      RETURN_IF_ERROR(AtLeast(field, lengths[i], 0));
      return Wrong(field,
                   absl::StrCat(field, " is ", lengths[i], ", but only ", rest, " of ", total,
                                " tokens are left: ", name, " must add up to ", total_name));
    }
    rest -= lengths[i];
  }
  if (rest == 0) return absl::OkStatus();
  return Wrong(
      name, absl::StrCat(name, " add up to ", total - rest, ", but ", total_name, " is ", total));
}

absl::Status ValidateSequences(const JobSpec& spec, const SpecLimits& limits) {
  const size_t count = spec.sequence_lengths.size();
  const size_t of_keys = spec.key_sequence_lengths.size();
  if (count > 0) {
    RETURN_IF_ERROR(
        ValidateLengths("sequence_lengths", spec.sequence_lengths, "tokens", spec.tokens, limits));
  }
  if (of_keys > 0) {
    RETURN_IF_ERROR(ValidateLengths("key_sequence_lengths", spec.key_sequence_lengths, "key_tokens",
                                    KeyTokens(spec), limits));
  }
  const bool same = KeyTokens(spec) == spec.tokens && of_keys == 0;
  if (same || std::max<size_t>(count, 1) == std::max<size_t>(of_keys, 1)) return absl::OkStatus();
  return Wrong("key_sequence_lengths",
               absl::StrCat("key_sequence_lengths has ", of_keys,
                            " entries, must have as many as sequence_lengths: ", count));
}

// The pattern of keys that are not as many as the queries.
absl::Status ValidateRectangle(const JobSpec& spec) {
  if (!IsRectangular(spec)) return absl::OkStatus();
  SequenceCursor cursor(spec);
  for (SequencePair pair; cursor.Next(pair);) {
    const int64_t queries = pair.queries.length, keys = pair.keys.length;
    if (queries == 0 || keys == 0 || queries == keys) continue;
    if (queries < keys && spec.align == Align::kEnd) continue;
    const std::string what =
        spec.align == Align::kStart
            ? absl::StrCat("align is start with ", queries, " queries and ", keys, " keys")
            : absl::StrCat("tokens is ", queries, " with key_tokens ", keys);
    const char* const field = spec.align == Align::kStart ? "align" : "key_tokens";
    if (spec.ordering) return Wrong(field, absl::StrCat(what, ", ordering must be absent"));
    for (size_t b = 0; b < spec.branches.size(); ++b) {
      const Branch& branch = spec.branches[b];
      if (branch.dilation > 1) {
        return Wrong(
            field, absl::StrCat(what, ", dilations[", b, "] is ", branch.dilation, ", must be 1"));
      }
      if (branch.segment < keys) {
        return Wrong(field, absl::StrCat(what, ", segments[", b, "] is ", branch.segment,
                                         ", must be at least the keys"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateBiasAxes(const JobSpec& spec) {
  const int axes = BiasAxes(spec);
  if (axes == 0) return absl::OkStatus();
  if (axes != 2 && axes != 3) {
    return Wrong("alibi.axes", absl::StrCat("alibi.axes is ", axes, ", must be 2 or 3"));
  }
  if (!IsRectangular(spec)) return absl::OkStatus();
  SequenceCursor cursor(spec);
  for (SequencePair pair; cursor.Next(pair);) {
    const int64_t queries = pair.queries.length, keys = pair.keys.length;
    if (queries == 0 || queries == keys) continue;
    const bool start = spec.align == Align::kStart;
    if (!start && queries < keys) continue;
    return Wrong(
        "alibi.distance",
        absl::StrCat("alibi.distance is coords with ",
                     start ? "align start" : absl::StrCat("key_tokens ", keys), " and tokens ",
                     queries, ", must be tokens: each query needs the coordinates of a key"));
  }
  return absl::OkStatus();
}

absl::Status ValidateGrid(const JobSpec& spec, const std::vector<int64_t>& grid) {
  if (grid.size() != 2 && grid.size() != 3) {
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid has ", grid.size(), " entries, must have 2 or 3"));
  }
  const int64_t limit = grid.size() == 2 ? kMaxGridSide2d : kMaxGridSide3d;
  int64_t cells = 1;
  bool overflows = false;
  for (size_t i = 0; i < grid.size(); ++i) {
    RETURN_IF_ERROR(InRange(absl::StrCat("ordering.grid[", i, "]"), grid[i], 1, limit));
    overflows = __builtin_mul_overflow(cells, grid[i], &cells) || overflows;
  }
  const std::string sides = absl::StrJoin(grid, ", ");
  const int64_t tokens = KeyTokens(spec);
  if (overflows) {
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid [", sides, "] has more cells than the ", tokens,
                              " tokens of the job"));
  }
  const bool square = tokens == spec.tokens;
  const char* const total = square ? "tokens" : "key_tokens";
  const std::vector<int64_t>& lengths = PackedKeys(spec);
  if (lengths.empty()) {
    if (cells == tokens) return absl::OkStatus();
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid [", sides, "] has ", cells, " cells, but ", total,
                              " is ", tokens, ": a grid must hold exactly one token per cell"));
  }
  const char* const name =
      spec.key_sequence_lengths.empty() ? "sequence_lengths" : "key_sequence_lengths";
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == cells || lengths[i] == 0) continue;
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid [", sides, "] has ", cells, " cells, but ", name, "[",
                              i, "] is ", lengths[i],
                              ": a grid must hold exactly one token of every sequence a cell"));
  }
  return absl::OkStatus();
}

absl::Status ValidateOrdering(const JobSpec& spec) {
  if (!spec.ordering.has_value()) return absl::OkStatus();
  const Ordering& ordering = *spec.ordering;
  RETURN_IF_ERROR(AtLeast("ordering.window", ordering.window, 0));
  const int axes = ordering.coordinate_axes;
  if (axes != 0 && axes != 2 && axes != 3) {
    return Wrong("ordering.coords",
                 absl::StrCat("ordering.coords_axes is ", axes, ", must be 2 or 3"));
  }
  if (ordering.window > 0 && !ordering.grid.empty()) {
    return Wrong("ordering.window", absl::StrCat("ordering.window is ", ordering.window,
                                                 ", must be 0 with ordering.grid"));
  }
  if (ordering.window > 0 && axes != 0) {
    return Wrong("ordering.window", absl::StrCat("ordering.window is ", ordering.window,
                                                 ", must be 0 with ordering.coords"));
  }
  if (!ordering.grid.empty() && axes != 0) {
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid [", absl::StrJoin(ordering.grid, ", "),
                              "] must not be given together with ordering.coords"));
  }
  return ordering.grid.empty() ? absl::OkStatus() : ValidateGrid(spec, ordering.grid);
}

absl::Status ValidateWindow(const JobSpec& spec) {
  if (!HasWindow(spec)) return absl::OkStatus();
  std::vector<std::string> sides;
  for (const std::optional<int64_t>& side : {spec.window->left, spec.window->right}) {
    if (side) {
      RETURN_IF_ERROR(AtLeast(absl::StrCat("window[", sides.size(), "]"), *side, 0));
    }
    sides.push_back(side ? absl::StrCat(*side) : "null");
  }
  const auto excluded = [&](const std::string& by) {
    return Wrong("window", absl::StrCat("window is [", absl::StrJoin(sides, ", "),
                                        "], must be absent with ", by));
  };
  for (size_t b = 0; b < spec.branches.size(); ++b) {
    const int64_t dilation = spec.branches[b].dilation;
    if (dilation > 1) return excluded(absl::StrCat("dilations[", b, "] ", dilation));
  }
  if (spec.ordering) return excluded("ordering");
  return spec.tail == Tail::kZero ? excluded("tail zero") : absl::OkStatus();
}

absl::Status ValidatePerHead(const std::string& field, const std::vector<double>& values,
                             int64_t heads) {
  if (std::ssize(values) != heads) {
    return Wrong(field, absl::StrCat(field, " has ", values.size(), " entries, must have ", heads,
                                     ", one for each of the heads"));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(IsFloat(absl::StrCat(field, "[", i, "]"), values[i]));
  }
  return absl::OkStatus();
}

absl::Status ValidateScores(const JobSpec& spec) {
  if (spec.scale) RETURN_IF_ERROR(IsFloat("scale", *spec.scale));
  if (spec.softcap) {
    RETURN_IF_ERROR(IsFloat("softcap", *spec.softcap));
    if (static_cast<float>(*spec.softcap) <= 0) {
      return Wrong("softcap", absl::StrCat("softcap is ", *spec.softcap,
                                           ", must be above 0 as a number of float32"));
    }
  }
  if (spec.alibi) {
    RETURN_IF_ERROR(ValidatePerHead("alibi.slopes", spec.alibi->slopes, spec.heads));
    if (spec.tail == Tail::kZero) {
      return Wrong("alibi", "alibi is given, must be absent with tail zero");
    }
    RETURN_IF_ERROR(ValidateBiasAxes(spec));
  }
  if (!spec.sinks.empty()) {
    RETURN_IF_ERROR(ValidatePerHead("sinks", spec.sinks, spec.heads));
  }
  return ValidateWindow(spec);
}

}  // namespace

int64_t ElementBytes(DataType dtype) { return dtype == DataType::kFloat32 ? 4 : 2; }

double JobSpec::Scale() const {
  return scale.has_value() ? *scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

absl::Status Validate(const JobSpec& spec, const SpecLimits& limits) {
  RETURN_IF_ERROR(InRange("tokens", spec.tokens, 1, limits.max_tokens));
  RETURN_IF_ERROR(InRange("key_tokens", KeyTokens(spec), 0, limits.max_tokens));
  RETURN_IF_ERROR(ValidateHeads(spec, limits));
  RETURN_IF_ERROR(ValidateBranches(spec, limits));
  RETURN_IF_ERROR(ValidateSequences(spec, limits));
  RETURN_IF_ERROR(ValidateRectangle(spec));
  RETURN_IF_ERROR(ValidateOrdering(spec));
  return ValidateScores(spec);
}

std::vector<Sequence> Sequences(const JobSpec& spec) {
  std::vector<Sequence> sequences;
  sequences.reserve(std::max<size_t>(1, spec.sequence_lengths.size()));
  SequenceCursor cursor(spec);
  for (SequencePair pair; cursor.Next(pair);) {
    if (pair.keys.length > 0) sequences.push_back(pair.keys);
  }
  return sequences;
}

std::vector<SequencePair> SequencePairs(const JobSpec& spec) {
  std::vector<SequencePair> pairs;
  pairs.reserve(std::max<size_t>(1, spec.sequence_lengths.size()));
  SequenceCursor cursor(spec);
  for (SequencePair pair; cursor.Next(pair);) pairs.push_back(pair);
  return pairs;
}

SequenceCursor::SequenceCursor(const JobSpec& spec)
    : spec_(spec),
      keys_(spec.key_sequence_lengths.empty() && KeyTokens(spec) == spec.tokens
                ? spec.sequence_lengths
                : spec.key_sequence_lengths) {}

bool SequenceCursor::Next(SequencePair& pair) {
  const std::vector<int64_t>& lengths = spec_.sequence_lengths;
  if (next_ >= std::max<size_t>(1, lengths.size())) return false;
  const int64_t queries = lengths.empty() ? spec_.tokens : lengths[next_];
  const int64_t keys = keys_.empty() ? KeyTokens(spec_) : keys_[next_];
  pair = {.queries = {query_, queries},
          .keys = {key_, keys},
          .shift = spec_.align == Align::kEnd ? keys - queries : 0};
  query_ += queries;
  key_ += keys;
  ++next_;
  return true;
}

int64_t LongestSequence(const JobSpec& spec) {
  int64_t longest = 0;
  SequenceCursor cursor(spec);
  for (SequencePair pair; cursor.Next(pair);) longest = std::max(longest, pair.keys.length);
  return longest;
}

bool IsRectangular(const JobSpec& spec) {
  if (!spec.key_tokens && spec.key_sequence_lengths.empty()) return false;
  if (KeyTokens(spec) != spec.tokens) return true;
  return !spec.key_sequence_lengths.empty() &&
         spec.key_sequence_lengths != (spec.sequence_lengths.empty()
                                           ? std::vector<int64_t>{spec.tokens}
                                           : spec.sequence_lengths);
}

}  // namespace hilbert_ring
