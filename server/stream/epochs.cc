#include "server/stream/epochs.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/field_error.h"
#include "engine/spec/tensor.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();  // exceeds every limit

int64_t CommonMultiple(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a / std::gcd(a, b), b, &product) ? kNone : product;
}

// An epoch's tokens are a multiple of this; kNone beyond 2^63.
int64_t MultipleOf(const JobSpec& spec) {
  int64_t multiple = 1;
  if (!spec.sequence_lengths.empty()) {
    multiple = 0;
    for (const int64_t length : spec.sequence_lengths) {
      if (__builtin_add_overflow(multiple, length, &multiple)) return kNone;
    }
    return multiple;
  }
  const auto take = [&multiple](int64_t length) {
    if (multiple != kNone) multiple = CommonMultiple(multiple, length);
  };
  for (const Branch& branch : spec.branches) take(branch.segment);
  if (spec.ordering) take(spec.ordering->window);
  return multiple;
}

const char* WhatItIsAMultipleOf(const JobSpec& spec) {
  if (!spec.sequence_lengths.empty()) return "of all sequence_lengths together";
  return spec.ordering ? "of all segments and the ordering's window" : "of all segments";
}

absl::Status InvalidSpec(const std::string& message, absl::string_view field) {
  return wire::WithReason(WithField(absl::InvalidArgumentError(message), field),
                          wire::reason::kInvalidSpec);
}

absl::Status CheckOrder(const JobSpec& spec) {
  if (!spec.ordering) return absl::OkStatus();
  const Ordering& ordering = *spec.ordering;
  if (!ordering.grid.empty()) {
    return InvalidSpec("ordering.grid: a stream without end has no grid; give a window",
                       "ordering.grid");
  }
  if (ordering.coordinate_axes != 0) {
    return InvalidSpec("ordering.coords: a stream without end takes no coordinates; give a window",
                       "ordering.coords");
  }
  if (ordering.window == 0 && spec.sequence_lengths.empty()) {
    return InvalidSpec(
        "ordering.window is 0, and the order of a whole sequence is not known before its end: give "
        "a window, or sequence_lengths",
        "ordering.window");
  }
  return absl::OkStatus();
}

}  // namespace

Epochs::Epochs(const JobSpec& spec, const EpochLimits& limits)
    : spec_(spec), multiple_(MultipleOf(spec)) {
  const RowSizes rows(spec);
  for (const TensorKind tensor : kInputKinds) input_row_bytes_ += rows[tensor];
  output_row_bytes_ = rows[TensorKind::kOut] + (limits.want_lse ? rows[TensorKind::kLse] : 0);
  if (!AddsZeroKeys(spec) || !spec.sequence_lengths.empty()) return;
  for (const Branch& branch : spec.branches) behind_ = std::max(behind_, branch.segment);
}

absl::StatusOr<Epochs> Epochs::Make(const JobSpec& spec, const EpochLimits& limits) {
  if (spec.tokens != 0) {
    return InvalidSpec(absl::StrCat("tokens is ", spec.tokens,
                                    ", but a stream without end has no count of tokens: leave it "
                                    "out"),
                       "tokens");
  }
  if (spec.key_tokens || !spec.key_sequence_lengths.empty()) {
    const char* const field = spec.key_tokens ? "key_tokens" : "key_sequence_lengths";
    return InvalidSpec(absl::StrCat(field, " is given, must be absent in a stream without end"),
                       field);
  }
  RETURN_IF_ERROR(CheckOrder(spec));
  if (BiasAxes(spec) > 0) {
    return InvalidSpec(
        "alibi.distance is coords, must be tokens in a stream without end: it takes no coordinates",
        "alibi.distance");
  }
  // Checks all but the tokens: any number does, except that sequences must add up to it.
  JobSpec any = spec;
  any.tokens = spec.sequence_lengths.empty() ? 1 : MultipleOf(spec);
  if (absl::Status status = Validate(any, limits.spec); !status.ok()) {
    return wire::WithReason(std::move(status), wire::reason::kInvalidSpec);
  }
  Epochs epochs(spec, limits);
  const int64_t multiple = epochs.multiple_;
  const int64_t row_bytes = epochs.input_row_bytes_ + epochs.output_row_bytes_;
  const int64_t most_rows =
      std::min(limits.most_bytes / row_bytes, limits.spec.max_tokens) - epochs.behind_;
  if (multiple > most_rows) {
    const int64_t bytes = epochs.BytesOf(multiple);
    const bool countable = multiple < (int64_t{1} << 40) && bytes != kNone;
    return wire::ErrorOf(
        wire::reason::kDoesNotFit,
        absl::StrCat(
            "the smallest epoch, a common multiple ", WhatItIsAMultipleOf(spec), ", has ",
            multiple == kNone ? "more than 2^63" : absl::StrCat(multiple), " tokens",
            countable ? absl::StrCat(", whose rows and outputs take ", bytes, " bytes") : "",
            "; the limit is ", limits.most_bytes, " bytes (a sixteenth of --stream-memory)",
            countable ? "" : ", and no service has enough"));
  }
  if (limits.asked < 0 || limits.asked % multiple != 0) {
    return wire::ErrorOf(wire::reason::kInvalidOpen,
                         absl::StrCat("epoch_tokens is ", limits.asked, ", must be a multiple of ",
                                      multiple, ", a common multiple ", WhatItIsAMultipleOf(spec)));
  }
  if (limits.asked > most_rows) {
    return wire::ErrorOf(
        wire::reason::kDoesNotFit,
        absl::StrCat("epoch_tokens is ", limits.asked, ", whose rows and outputs take more than ",
                     limits.most_bytes, " bytes (a sixteenth of --stream-memory); ",
                     most_rows / multiple * multiple, " would fit"));
  }
  int64_t of_multiple = most_rows / multiple;
  if (!spec.sequence_lengths.empty()) {
    const auto sequences = static_cast<int64_t>(spec.sequence_lengths.size());
    of_multiple = std::min(of_multiple, limits.spec.max_sequences / sequences);
  }
  epochs.tokens_ = limits.asked > 0 ? limits.asked : of_multiple * multiple;
  return epochs;
}

bool Epochs::Halve() {
  if (tokens_ == multiple_) return false;
  tokens_ = tokens_ / multiple_ / 2 * multiple_;
  return true;
}

int64_t Epochs::DueAt(int64_t begin, int64_t come, bool ended) const {
  const int64_t there = come - begin;
  if (there >= tokens_ + behind_) return tokens_;
  return ended ? there : 0;
}

JobSpec Epochs::SpecOf(int64_t tokens) const {
  JobSpec spec = spec_;
  spec.tokens = tokens;
  if (spec_.sequence_lengths.empty()) return spec;
  spec.sequence_lengths.clear();
  for (size_t i = 0; tokens > 0; i = (i + 1) % spec_.sequence_lengths.size()) {
    spec.sequence_lengths.push_back(std::min(tokens, spec_.sequence_lengths[i]));
    tokens -= spec.sequence_lengths.back();
  }
  return spec;
}

}  // namespace hilbert_ring::server
