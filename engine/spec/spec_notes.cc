#include "engine/spec/spec_notes.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace hilbert_ring {

std::vector<std::string> NotesOn(const JobSpec& spec) {
  std::vector<std::string> notes;
  if (spec.ordering && spec.ordering->window == 0 && spec.ordering->grid.empty() &&
      spec.ordering->coordinate_axes == 0) {
    notes.push_back(
        "ordering: neither grid nor coordinates are given: the curve runs over a square that the "
        "tokens of a sequence fill row by row");
  }
  const auto branches = static_cast<int64_t>(spec.branches.size());
  if (spec.mixing == Mixing::kHeadGroups && branches > spec.heads) {
    notes.push_back(absl::StrCat(
        "segments: ", branches, " branches for ", spec.heads, spec.heads == 1 ? " head" : " heads",
        ": with mixing head_groups those from branch ", spec.heads,
        " on have no head and compute nothing",
        spec.average_groups ? absl::StrCat("; outputs are still divided by ", branches) : ""));
  }
  const int64_t longest = LongestSequence(spec);
  for (size_t i = 0; i < spec.branches.size(); ++i) {
    const Branch& branch = spec.branches[i];
    const int64_t segment = std::min(branch.segment, longest);
    if (segment == 0 || branch.dilation <= segment) continue;  // 0: no keys
    notes.push_back(absl::StrCat("dilations[", i, "]: ", branch.dilation,
                                 " is above its segment of ", segment,
                                 branch.segment > longest ? " (the longest sequence)" : "",
                                 ": a head reads at most one row of a segment"));
  }
  if (spec.tail == Tail::kZero && spec.causal) {
    notes.push_back("tail: zero has no effect on a causal job");
  }
  return notes;
}

}  // namespace hilbert_ring
