#include "engine/plan/plan_size.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/base/saturating.h"

namespace hilbert_ring {
namespace {

// Runs of segments: 40 bytes each, 168 MB.
constexpr int64_t kMaxRuns = int64_t{1} << 22;

// Visits of a phase to a run of segments, or of a block to a rank.
constexpr int64_t kMaxVisits = int64_t{1} << 28;

}  // namespace

absl::Status CheckSequences(const JobSpec& spec) {
  const auto sequences = static_cast<int64_t>(std::max<size_t>(1, spec.sequence_lengths.size()));
  const auto branches = static_cast<int64_t>(spec.branches.size());
  if (sequences * branches <= kMaxRuns) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("sequence_lengths has ", sequences, " entries, with ",
                                            branches, " branches (segments, dilations) at most ",
                                            kMaxRuns / branches, " can be planned"));
}

absl::Status CheckPlanSize(const JobSpec& spec, const std::vector<Phase>& phases,
                           const Segments& segments) {
  std::vector<int64_t> of_branch(spec.branches.size(), 0);
  for (const Phase& phase : phases) ++of_branch[phase.branch];
  int64_t visits = 0;
  for (const LocalSegments& run : segments.local) {
    visits = SaturatingAdd(visits, of_branch[run.branch]);
  }
  for (const SpanningSegment& segment : segments.spanning) {
    const auto pieces = static_cast<int64_t>(segment.pieces.size());
    visits = SaturatingAdd(visits, SaturatingMultiply(pieces * pieces, of_branch[segment.branch]));
  }
  if (visits <= kMaxVisits) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "segments, dilations: a plan of ", phases.size(), " offsets of branches over ",
      segments.local.size(), " runs of segments and ", segments.spanning.size(),
      " segments over several workers takes ", visits, " steps, must take at most ", kMaxVisits));
}

}  // namespace hilbert_ring
