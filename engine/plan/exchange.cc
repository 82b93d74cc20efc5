#include "engine/plan/exchange.h"

#include <algorithm>

#include "engine/base/saturating.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {
namespace {

// The segments of one branch in one sequence.
class SegmentFinder {
 public:
  SegmentFinder(int branch, const Branch& pattern, const Sequence& sequence,
                const std::vector<ShardRange>& ranges)
      : branch_(branch),
        length_(SegmentLength(pattern, sequence)),
        begin_(sequence.begin),
        end_(sequence.begin + sequence.length) {
    auto after = std::upper_bound(ranges.begin(), ranges.end(), begin_,
                                  [](int64_t slot, const ShardRange& r) { return slot < r.begin; });
    first_ = after - 1;
    last_ = std::lower_bound(after, ranges.end(), end_,
                             [](const ShardRange& r, int64_t slot) { return r.begin < slot; });
  }

  // rank: of local segments; empty: all.
  void AddTo(Segments& segments, std::optional<int> rank) const {
    int64_t spanned = -1;  // index of the last spanning segment added
    for (auto range = first_; range != last_; ++range) {
      const int64_t from = std::max(range->begin, begin_) - begin_;
      const int64_t to = std::min(range->end, end_) - begin_;
      if (!rank || range->rank == *rank) AddLocal(*range, from, to, segments);
      const int64_t cut = to / length_;
      if (begin_ + to < end_ && to % length_ != 0 && cut > spanned) {
        AddSpanning(cut, segments);
        spanned = cut;
      }
    }
  }

 private:
  // Adds segments wholly in [from, to) of the sequence, in the range.
  void AddLocal(const ShardRange& range, int64_t from, int64_t to, Segments& segments) const {
    const int64_t first = (from + length_ - 1) / length_;
    const int64_t full = to / length_;
    if (first < full) AddRun(range, first, length_, full - first, segments.local);
    const int64_t rest = to - full * length_;
    if (begin_ + to == end_ && rest > 0 && full * length_ >= from) {
      AddRun(range, full, rest, 1, segments.local);
    }
  }

  // Joins the last run if it is in the range and has equal segments.
  void AddRun(const ShardRange& range, int64_t first, int64_t length, int64_t count,
              std::vector<LocalSegments>& runs) const {
    const int64_t begin = begin_ + first * length_;
    if (!runs.empty() && begin > range.begin) {
      LocalSegments& last = runs.back();
      if (last.branch == branch_ && last.length == length && last.full_length == length_ &&
          last.begin + last.count * length == begin) {
        last.count += count;
        return;
      }
    }
    runs.push_back({.branch = branch_,
                    .rank = range.rank,
                    .begin = begin,
                    .length = length,
                    .count = count,
                    .full_length = length_});
  }

  void AddSpanning(int64_t index, Segments& segments) const {
    SpanningSegment segment{.branch = branch_,
                            .begin = begin_ + index * length_,
                            .end = std::min(begin_ + (index + 1) * length_, end_),
                            .full_length = length_};
    auto range = std::upper_bound(first_, last_, segment.begin,
                                  [](int64_t slot, const ShardRange& r) { return slot < r.begin; });
    for (--range; range != last_ && range->begin < segment.end; ++range) {
      segment.pieces.push_back({.rank = range->rank,
                                .begin = std::max(range->begin, segment.begin),
                                .end = std::min(range->end, segment.end)});
    }
    segments.spanning.push_back(std::move(segment));
  }

  const int branch_;
  const int64_t length_;
  const int64_t begin_, end_;
  std::vector<ShardRange>::const_iterator first_, last_;
};

// Ends of a piece's blocks: where the rows that another piece sees begin or end, and its own end.
std::vector<int64_t> CutsOf(const SpanningSegment& segment, size_t index, const Reach& reach) {
  const Piece& piece = segment.pieces[index];
  std::vector<int64_t> cuts = {piece.end};
  const auto cut = [&](int64_t slot) {
    if (slot > piece.begin && slot < piece.end) cuts.push_back(slot);
  };
  for (const Piece& other : segment.pieces) {
    if (reach.left != kUnbounded) cut(other.begin - reach.left);
    if (reach.right != kUnbounded) cut(SaturatingAdd(other.end, reach.right));
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

Segments FindSegments(const JobSpec& spec, const Shards& shards, std::optional<int> rank) {
  Segments segments;
  for (size_t branch = 0; branch < spec.branches.size(); ++branch) {
    SequenceCursor cursor(spec);
    for (SequencePair pair; cursor.Next(pair);) {
      if (pair.keys.length == 0) continue;
      SegmentFinder(static_cast<int>(branch), spec.branches[branch], pair.keys, shards.ranges())
          .AddTo(segments, rank);
    }
  }
  return segments;
}

std::span<const LocalSegments> RunsWithin(const Segments& segments, int branch, int64_t begin,
                                          int64_t end) {
  const auto before = [&](int64_t slot) {
    return std::partition_point(
        segments.local.begin(), segments.local.end(), [&](const LocalSegments& run) {
          return run.branch < branch || (run.branch == branch && run.begin < slot);
        });
  };
  auto first = before(begin);
  const auto last = before(end);
  if (first != segments.local.begin()) {
    const LocalSegments& run = *(first - 1);
    if (run.branch == branch && run.begin + run.count * run.length > begin) --first;
  }
  return {first, std::max(first, last)};
}

PhaseExchange::PhaseExchange(const JobSpec& spec, const SpanningSegment& segment,
                             const Phase& phase)
    : reach_(ReachOf(spec)) {
  const int64_t dilation = spec.branches[phase.branch].dilation;
  const auto selected = [&](int64_t begin, int64_t end) {
    return Selected(segment.begin, phase.offset, dilation, begin, end);
  };
  for (const Piece& piece : segment.pieces) {
    if (selected(piece.begin, piece.end).count > 0) ranks_.push_back(piece.rank);
  }
  std::sort(ranks_.begin(), ranks_.end());
  ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
  queries_.resize(ranks_.size());
  for (size_t i = 0; i < segment.pieces.size(); ++i) {
    const Piece& piece = segment.pieces[i];
    const Progression rows = selected(piece.begin, piece.end);
    if (rows.count == 0) continue;
    queries_[IndexOf(piece.rank)].push_back(rows);
    int64_t begin = piece.begin;
    for (const int64_t end : CutsOf(segment, i, reach_)) {
      const Progression part = selected(begin, end);
      begin = end;
      if (part.count == 0) continue;
      blocks_.push_back({.piece = static_cast<int>(i), .rank = piece.rank, .rows = part});
    }
  }
}

int PhaseExchange::IndexOf(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

bool PhaseExchange::Needs(int index, const Block& block) const {
  return std::ranges::any_of(queries_[index], [&](const Progression& queries) {
    return Sees(reach_, queries, block.rows);
  });
}

std::vector<int> PhaseExchange::Route(const Block& block) const {
  std::vector<int> route;
  const int size = static_cast<int>(ranks_.size());
  const int owner = IndexOf(block.rank);
  const bool down = !Needs((owner + 1) % size, block) && Needs((owner + size - 1) % size, block);
  for (int hop = 1; hop < size; ++hop) {
    const int index = (down ? owner - hop + size : owner + hop) % size;
    if (Needs(index, block)) route.push_back(ranks_[index]);
  }
  return route;
}

int64_t BlockRowBytes(const JobSpec& spec, const Phase& phase) {
  const int64_t positions = NeedsPositions(spec) ? sizeof(int64_t) : 0;
  return phase.kv_heads() * (spec.head_dim + spec.value_dim) * ElementBytes(spec.dtype) +
         positions + RowBytes(spec, TensorKind::kBiasCoords);
}

}  // namespace hilbert_ring
