// The pattern as integers: the slots that a branch selects for its heads.
//
//   for (const Phase& phase : Phases(spec)) {
//     const int64_t dilation = spec.branches[phase.branch].dilation;
//     const Progression rows = Selected(begin, phase.offset, dilation, begin, end);
//     pairs += phase.heads() * Pairs(rows, rows, ReachOf(spec));
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// A branch and an offset, with the query heads that select their rows.
struct Phase {
  int branch = 0;
  int64_t offset = 0;
  int64_t head_begin = 0, head_end = 0;
  int64_t kv_begin = 0, kv_end = 0;
  int64_t heads() const { return head_end - head_begin; }
  int64_t kv_heads() const { return kv_end - kv_begin; }
};

// Returns the phases of a valid spec, by branch, then by offset.
std::vector<Phase> Phases(const JobSpec& spec);

// Phases [begin, end) of one branch, as indices into Phases().
struct PhaseRange {
  size_t begin = 0, end = 0;
};
PhaseRange PhasesOf(const std::vector<Phase>& phases, int branch);

// Query heads [begin, end) of a phase that read a kv head.
struct HeadRange {
  int64_t begin = 0, end = 0;
};
HeadRange QueryHeads(const JobSpec& spec, const Phase& phase, int64_t kv_head);

// Slots first, first + step, ...: `count` of them.
struct Progression {
  int64_t first = 0, step = 1, count = 0;
  int64_t last() const { return first + (count - 1) * step; }
};

// Returns the slots in [begin, end) that a phase selects. origin: the first slot of their segment,
// at most `begin`.
Progression Selected(int64_t origin, int64_t offset, int64_t dilation, int64_t begin, int64_t end);

// Returns the length of a branch's segments in a sequence. The last segment may be shorter.
inline int64_t SegmentLength(const Branch& branch, const Sequence& sequence) {
  return branch.segment < sequence.length ? branch.segment : sequence.length;
}

// Returns the number of zero keys that the tail adds to a segment of `rows` selected rows.
int64_t ZeroKeys(const JobSpec& spec, const Branch& branch, int64_t segment_length, int64_t rows);

// A query at slot p sees keys at slots p - left to p + right.
struct Reach {
  int64_t left = kUnbounded, right = kUnbounded;
  bool bounded() const { return left != kUnbounded || right != kUnbounded; }
};

// Returns the reach of the causal mask and the window. It is unbounded with an ordering, because
// the mask then depends on the order.
Reach ReachOf(const JobSpec& spec);

// Returns whether a query sees a key. Both are progressions of one phase with rows.
bool Sees(const Reach& reach, const Progression& queries, const Progression& keys);

// Returns the number of unmasked (query, key) pairs. The number is a double, because two
// progressions of 2^40 slots have 2^80 pairs. It is exact below 2^53.
double Pairs(const Progression& queries, const Progression& keys, const Reach& reach);

}  // namespace hilbert_ring
