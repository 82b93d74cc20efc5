// The pattern as integers: which slots a branch selects for which heads.
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

// The phases of a valid spec: by branch, then by offset.
std::vector<Phase> Phases(const JobSpec& spec);

// The phases [begin, end) of a branch.
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

// Slots in [begin, end) that `offset` selects in a segment that starts at `origin` <= begin.
Progression Selected(int64_t origin, int64_t offset, int64_t dilation, int64_t begin, int64_t end);

// Length of all segments of a branch in a sequence, except a shorter last one.
inline int64_t SegmentLength(const Branch& branch, const Sequence& sequence) {
  return branch.segment < sequence.length ? branch.segment : sequence.length;
}

// Zero keys that the tail adds to a segment of `rows` selected rows.
int64_t ZeroKeys(const JobSpec& spec, const Branch& branch, int64_t segment_length, int64_t rows);

// Unmasked (query, key) pairs: all, or in a triangle those with key slot <= query slot. A double,
// because two progressions of 2^40 slots have 2^80 pairs; exact below 2^53.
double Pairs(const Progression& queries, const Progression& keys, bool triangle);

}  // namespace hilbert_ring
