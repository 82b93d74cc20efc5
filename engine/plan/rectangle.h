// Plans of jobs with another number of queries than of keys.
//
// Keys are cut into even shards of slots, queries into even shards of their own numbers. Rows
// travel in rounds, which bound the buffers:
//   queries travel: a rank's queries go to the ranks whose keys they see, and the partial results
//     (float32 out, maximum, sum) come back. Each round takes two steps.
//   keys travel: a rank's keys and values go to the ranks whose queries see them. Each round takes
//     one step. Patterns are one dense segment without an ordering.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/cost.h"
#include "engine/plan/pattern.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

enum class Travels { kQueries, kKeys };

// Rows [begin, end), empty if they are not ordered so.
struct Rows {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end > begin ? end - begin : 0; }
};
Rows Overlap(const Rows& a, const Rows& b);

// The pairs that may have a query, or a key, among `rows`. O(log pairs).
using Side = Sequence SequencePair::*;
std::span<const SequencePair> PairsWith(std::span<const SequencePair> pairs, Side side,
                                        const Rows& rows);

struct Rectangle {
  Travels travels = Travels::kQueries;
  std::string why;  // it travels so
  Shards queries;   // ranges of queries in place of slots
  std::vector<SequencePair> pairs;
  std::vector<Rows> needed;  // [ranks]: travelling rows that the rank needs
  int64_t round_rows = 1;    // most travelling rows of one rank in a round
  int64_t rounds = 0;
  int64_t steps() const { return travels == Travels::kQueries ? 2 * rounds : rounds; }

  // The queries of a rank.
  Rows QueriesOf(int rank) const;
};

// The rows of rank `from` that rank `to` needs in a round: queries, or keys.
Rows TravellingRows(const Rectangle& rectangle, const Shards& keys, int from, int to,
                    int64_t round);

// The rows of a rank that has at most one range.
Rows RowsOfRank(const Shards& shards, int rank);

// Returns whether a travelling query has its slot with it.
bool QueriesCarrySlots(const JobSpec& spec);

// Bytes of a travelling query, of its partial result, and of a travelling key.
int64_t QueryRowBytes(const JobSpec& spec);
int64_t PartialRowBytes(const JobSpec& spec);
int64_t KeyRowBytes(const JobSpec& spec);

// Offsets of a rank's buffers of a round in its arena.
struct RoundBuffers {
  // A peer's parts. Queries travel: its queries, their slots, positions, coordinates and partial
  // results here, and the partial results that it returns. Keys travel: its keys, then its values,
  // then its coordinates.
  struct Peer {
    int64_t rows = 0, slots = 0, positions = 0, coordinates = 0, partials = 0, returned = 0;
  };
  int64_t packed = 0, packed_slots = 0, packed_coordinates = 0;  // own rows
  std::vector<Peer> peers;
  int64_t bytes = 0;
};

// half: 0 or 1, which rounds of keys take by turns; queries have half 0 alone. `bytes` is that of
// all.
RoundBuffers RoundBuffersOf(const JobSpec& spec, const Rectangle& rectangle, const Shards& keys,
                            int rank, int half);

// Shards of `rows`, as even as can be.
Shards EvenShards(int64_t rows, int workers);

// The queries of a sequence that meet keys of it: parts of `count` equal segments, one after the
// other. Parts are whole segments if there are several.
struct SegmentRun {
  int64_t begin = 0;   // slot of the first segment
  int64_t length = 0;  // of each
  int64_t count = 1;
  int64_t full_length = 0;  // of the branch's segments in the sequence
  Rows queries, keys;       // slots, of the first segment
};

// The runs of one branch where given queries, by their numbers, meet given keys, by their slots.
// Without an ordering: a query's slot is its position.
std::vector<SegmentRun> RunsOf(const JobSpec& spec, int branch, const SequencePair& pair,
                               const Rows& queries, const Rows& keys);

// Rows that a phase selects among slots `rows` of a run's first segment.
Progression SelectedOf(const SegmentRun& run, const Phase& phase, int64_t dilation,
                       const Rows& rows);

struct RectanglePlan {
  Rectangle rectangle;
  Costs costs;
};

// Plans a rectangular job over shards of keys, by the quicker way to travel.
RectanglePlan PlanRectangle(const JobSpec& spec, const Shards& keys,
                            const std::vector<Phase>& phases);

}  // namespace hilbert_ring
