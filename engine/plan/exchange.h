// Segments that lie over several ranges, and how their keys and values travel.
//
// A segment of one branch that is cut by a shard boundary is spanning. For each of its phases,
// every range that holds selected rows holds one block of keys and values: packed [rows, kv heads,
// head_dim] then [rows, kv heads, value_dim], and original positions [rows] where the mask needs
// them. A block goes from its owner along a route through the ranks that need it, one hop a step,
// as far as somebody needs it. All spanning segments step together: hop h of every block happens in
// step h.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/pattern.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// Part of a segment within one range.
struct Piece {
  int rank = 0;
  int64_t begin = 0, end = 0;  // slots
};

struct SpanningSegment {
  int branch = 0;
  int64_t begin = 0, end = 0;  // slots
  int64_t full_length = 0;     // of the branch's segments in this sequence
  std::vector<Piece> pieces;   // in slot order
};

// `count` segments of one branch and sequence that follow each other inside one range.
struct LocalSegments {
  int branch = 0;
  int rank = 0;
  int64_t begin = 0;   // slot of the first
  int64_t length = 0;  // of each
  int64_t count = 0;
  int64_t full_length =
      0;  // of the branch's segments in this sequence; > length for a short last one
};

struct Segments {
  std::vector<LocalSegments> local;
  std::vector<SpanningSegment> spanning;
};

// Every segment of the pattern, local ones in runs. O(ranges x branches + sequences x branches).
Segments FindSegments(const JobSpec& spec, const Shards& shards);

// Selected rows of one piece for one phase.
struct Block {
  int piece = 0;  // index into SpanningSegment::pieces
  int rank = 0;   // owner
  Progression rows;
};

// One phase of one spanning segment: who holds what, and who needs it.
class PhaseExchange {
 public:
  PhaseExchange(const JobSpec& spec, const SpanningSegment& segment, const Phase& phase);

  const std::vector<Block>& blocks() const { return blocks_; }  // with rows, in slot order
  const std::vector<int>& ranks() const { return ranks_; }      // that hold rows, ascending

  // The ranks that a block visits, in order, without its owner. Cyclic over ranks(), upwards as a
  // rule, downwards for blocks that only lower ranks need, so that in every step a rank has one
  // block a direction to send.
  std::vector<int> Route(const Block& block) const;

 private:
  int IndexOf(int rank) const;  // in ranks_; -1 when it holds no rows
  // Whether some query of the rank sees a key of the block.
  bool Needs(int index, const Block& block) const;

  bool triangle_ = false;
  std::vector<Block> blocks_;
  std::vector<int> ranks_;
  std::vector<int64_t> last_slot_;  // by index of ranks_: last selected slot
};

// Bytes of one row of a block.
int64_t BlockRowBytes(const JobSpec& spec, const Phase& phase);

}  // namespace hilbert_ring
