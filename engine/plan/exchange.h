// Segments that lie over several ranges (spanning), and how their keys and values travel. In each
// phase, every range with selected rows holds one block, or several if a window lets other ranks
// see only some rows: keys [rows, kv heads, head_dim], then values [rows, kv heads, value_dim],
// then positions [rows] if the mask needs them, then coordinates [rows, axes] of a bias. A block
// travels along a route through the ranks that need it. Hop h of every block is in step h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan/pattern.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

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

// Consecutive segments of one branch inside one range, of sequences with equal segments.
struct LocalSegments {
  int branch = 0;
  int rank = 0;
  int64_t begin = 0;   // slot of the first
  int64_t length = 0;  // of each
  int64_t count = 0;
  int64_t full_length = 0;  // of the branch's segments in the sequence; > length if last and short
};

struct Segments {
  std::vector<LocalSegments> local;
  std::vector<SpanningSegment> spanning;
};

// Every segment of the pattern, local ones in runs, ordered by branch and slot. rank: finds local
// segments of this rank alone. O(ranges x branches + sequences x branches).
Segments FindSegments(const JobSpec& spec, const Shards& shards,
                      std::optional<int> rank = std::nullopt);

// Local runs of a branch with slots in [begin, end). O(log runs).
std::span<const LocalSegments> RunsWithin(const Segments& segments, int branch, int64_t begin,
                                          int64_t end);

struct Block {
  int piece = 0;  // index into SpanningSegment::pieces
  int rank = 0;   // owner
  Progression rows;
};

class PhaseExchange {
 public:
  PhaseExchange(const JobSpec& spec, const SpanningSegment& segment, const Phase& phase);

  const std::vector<Block>& blocks() const { return blocks_; }  // with rows, in slot order
  const std::vector<int>& ranks() const { return ranks_; }      // with rows, ascending

  // The ranks that a block visits after its owner. Routes are cyclic over ranks(), upwards, or
  // downwards if only lower ranks need the block: a rank then sends one block a step in each
  // direction.
  std::vector<int> Route(const Block& block) const;

 private:
  int IndexOf(int rank) const;  // in ranks_; -1 for a rank without rows
  // Returns whether a query of the rank sees a key of the block.
  bool Needs(int index, const Block& block) const;

  Reach reach_;
  std::vector<Block> blocks_;
  std::vector<int> ranks_;
  std::vector<std::vector<Progression>> queries_;  // by index of ranks_: a range's selected rows
};

int64_t BlockRowBytes(const JobSpec& spec, const Phase& phase);

}  // namespace hilbert_ring
