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

absl::Status ValidateSequences(const JobSpec& spec, const SpecLimits& limits) {
  const auto count = static_cast<int64_t>(spec.sequence_lengths.size());
  if (count == 0) return absl::OkStatus();
  if (absl::Status s = AtMost("the number of sequence_lengths", count, limits.max_sequences);
      !s.ok()) {
    return WithField(s, "sequence_lengths");
  }
  int64_t rest = spec.tokens;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = spec.sequence_lengths[i];
    const std::string field = absl::StrCat("sequence_lengths[", i, "]");
    RETURN_IF_ERROR(AtLeast(field, length, 1));
    if (length > rest) {
      return Wrong(field,
                   absl::StrCat(field, " is ", length, ", but only ", rest, " of ", spec.tokens,
                                " tokens are left: sequence_lengths must add up to tokens"));
    }
    rest -= length;
  }
  if (rest != 0) {
    return Wrong("sequence_lengths", absl::StrCat("sequence_lengths add up to ", spec.tokens - rest,
                                                  ", but tokens is ", spec.tokens));
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
  if (overflows) {
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid [", sides, "] has more cells than the ", spec.tokens,
                              " tokens of the job"));
  }
  if (spec.sequence_lengths.empty()) {
    if (cells == spec.tokens) return absl::OkStatus();
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid [", sides, "] has ", cells, " cells, but tokens is ",
                              spec.tokens, ": a grid must hold exactly one token per cell"));
  }
  for (size_t i = 0; i < spec.sequence_lengths.size(); ++i) {
    if (spec.sequence_lengths[i] == cells) continue;
    return Wrong("ordering.grid",
                 absl::StrCat("ordering.grid [", sides, "] has ", cells,
                              " cells, but sequence_lengths[", i, "] is ", spec.sequence_lengths[i],
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
  RETURN_IF_ERROR(ValidateHeads(spec, limits));
  RETURN_IF_ERROR(ValidateBranches(spec, limits));
  RETURN_IF_ERROR(ValidateSequences(spec, limits));
  RETURN_IF_ERROR(ValidateOrdering(spec));
  return ValidateScores(spec);
}

std::vector<Sequence> Sequences(const JobSpec& spec) {
  if (spec.sequence_lengths.empty()) return {{0, spec.tokens}};
  std::vector<Sequence> sequences;
  sequences.reserve(spec.sequence_lengths.size());
  int64_t begin = 0;
  for (const int64_t length : spec.sequence_lengths) {
    sequences.push_back({begin, length});
    begin += length;
  }
  return sequences;
}

}  // namespace hilbert_ring
