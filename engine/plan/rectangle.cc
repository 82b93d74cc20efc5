#include "engine/plan/rectangle.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/base/saturating.h"
#include "engine/plan/step_bytes.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring {
namespace {

// Buffers of a round take up to this, or a share of the worker's keys and values.
constexpr int64_t kLeastRoundBytes = int64_t{16} << 20;
constexpr int64_t kShardBytesOverRoundBytes = 4;

constexpr int64_t kMostRoundsWithTransfers = 64;
constexpr int64_t kNumberBytes = sizeof(int64_t);

Rows RowsOf(const Sequence& sequence) { return {sequence.begin, sequence.begin + sequence.length}; }

Rows Hull(const Rows& a, const Rows& b) {
  if (a.count() == 0) return b;
  if (b.count() == 0) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

bool HasDensePattern(const JobSpec& spec) {
  const int64_t longest = LongestSequence(spec);
  return !spec.ordering && std::ranges::all_of(spec.branches, [&](const Branch& branch) {
    return branch.dilation == 1 && branch.segment >= longest;
  });
}

// The queries of a pair that may see keys [begin, end) of it.
Rows QueriesThatSee(const JobSpec& spec, const SequencePair& pair, const Rows& keys) {
  const Rows all = RowsOf(pair.queries);
  if (keys.count() == 0) return {};
  if (spec.ordering && spec.ordering->scope == OrderScope::kQkv) return all;
  // Positions, from the sequence's first key.
  const int64_t first = keys.begin - pair.keys.begin, last = keys.end - 1 - pair.keys.begin;
  const Reach reach = ReachOf(spec);
  Rows seen;
  for (const Branch& branch : spec.branches) {
    const int64_t length = SegmentLength(branch, pair.keys);
    const bool dense = branch.dilation == 1 && length == pair.keys.length;
    int64_t begin = dense ? -kUnbounded / 2 : first / length * length;
    int64_t end = dense ? kUnbounded / 2 : (last / length + 1) * length;
    if (reach.right != kUnbounded) begin = std::max(begin, first - reach.right);
    if (reach.left != kUnbounded && reach.left < end - last) end = last + reach.left + 1;
    seen = Hull(seen, {begin, end});
  }
  const int64_t to_query = pair.queries.begin - pair.shift;
  return Overlap(all, {seen.begin + to_query, seen.end + to_query});
}

// The keys of a pair that queries of it may see, under a dense pattern.
Rows KeysThatAreSeen(const JobSpec& spec, const SequencePair& pair, const Rows& queries) {
  if (queries.count() == 0) return {};
  const int64_t to_key = pair.keys.begin + pair.shift - pair.queries.begin;
  const Reach reach = ReachOf(spec);
  Rows seen = RowsOf(pair.keys);
  if (reach.left != kUnbounded) {
    seen.begin = std::max(seen.begin, queries.begin + to_key - reach.left);
  }
  if (reach.right != kUnbounded && reach.right < seen.end - (queries.end - 1 + to_key)) {
    seen.end = queries.end + to_key + reach.right;
  }
  return seen.count() == 0 ? Rows{} : seen;
}

int64_t MostOfRank(const Shards& shards) {
  int64_t most = 0;
  for (int rank = 0; rank < shards.workers(); ++rank) most = std::max(most, shards.Rows(rank));
  return most;
}

double PairsOfRank(const JobSpec& spec, const Rectangle& rectangle, const Phase& phase,
                   const Rows& queries, const Rows& keys) {
  double pairs = 0;
  const Branch& branch = spec.branches[phase.branch];
  const bool keys_travel = rectangle.travels == Travels::kKeys;
  for (const SequencePair& pair :
       PairsWith(rectangle.pairs, keys_travel ? &SequencePair::queries : &SequencePair::keys,
                 keys_travel ? queries : keys)) {
    const Rows met = Overlap(keys, RowsOf(pair.keys));
    const Rows asking = Overlap(queries, RowsOf(pair.queries));
    if (met.count() == 0 || asking.count() == 0) continue;
    if (spec.ordering) {  // as if queries were spread over the slots, and every key were seen
      const int64_t length = SegmentLength(branch, pair.keys);
      const auto dilation = static_cast<double>(branch.dilation);
      pairs += static_cast<double>(asking.count()) / dilation * static_cast<double>(met.count()) /
               dilation * static_cast<double>(length) / static_cast<double>(pair.keys.length);
      continue;
    }
    for (const SegmentRun& run : RunsOf(spec, phase.branch, pair, asking, met)) {
      pairs += static_cast<double>(run.count) *
               Pairs(SelectedOf(run, phase, branch.dilation, run.queries),
                     SelectedOf(run, phase, branch.dilation, run.keys), ReachOf(spec));
    }
  }
  return pairs;
}

class RectangleCosts {
 public:
  RectangleCosts(const JobSpec& spec, const Shards& keys, const std::vector<Phase>& phases,
                 const Rectangle& rectangle)
      : spec_(spec),
        keys_(keys),
        phases_(phases),
        rectangle_(rectangle),
        workers_(keys.workers()) {}

  Costs Compute() {
    costs_.workers.resize(workers_);
    costs_.branches.resize(spec_.branches.size());
    costs_.steps = workers_ > 1 ? rectangle_.steps() : 0;
    for (int from = 0; from < workers_; ++from) {
      for (int to = 0; to < workers_; ++to) {
        if (from != to) AddTransfers(from, to);
      }
    }
    double busiest = 0;
    for (int rank = 0; rank < workers_; ++rank) {
      WorkerCost& worker = costs_.workers[rank];
      AddMemory(rank);
      AddFlops(rank);
      costs_.flops += worker.flops;
      busiest = std::max(busiest, worker.flops);
      costs_.bytes_exchanged = SaturatingAdd(costs_.bytes_exchanged, worker.bytes_received);
    }
    costs_.branches[0].bytes_exchanged = costs_.bytes_exchanged;
    if (costs_.flops > 0) costs_.busiest_over_mean = busiest * workers_ / costs_.flops;
    costs_.bytes_exchanged_naive =
        SaturatingMultiply(workers_ - 1, SaturatingMultiply(KeyTokens(spec_), KeyRowBytes(spec_)));
    std::ranges::sort(costs_.transfers, [](const StepTransfer& a, const StepTransfer& b) {
      return std::tie(a.step, a.from, a.to) < std::tie(b.step, b.from, b.to);
    });
    return std::move(costs_);
  }

 private:
  void AddMemory(int rank) {
    WorkerCost& worker = costs_.workers[rank];
    const int64_t queries = rectangle_.queries.Rows(rank), keys = keys_.Rows(rank);
    worker.tokens = keys;
    const int64_t lse_row = RowBytes(spec_, TensorKind::kLse);
    const int64_t query_row = RowBytes(spec_, TensorKind::kQ) +
                              RowBytes(spec_, TensorKind::kBiasCoords) +
                              RowBytes(spec_, TensorKind::kOut) + lse_row;
    worker.shard_bytes = SaturatingAdd(SaturatingMultiply(queries, query_row),
                                       SaturatingMultiply(keys, KeyRowBytes(spec_)));
    int64_t accumulator_row = lse_row;  // sums; lse has the maxima
    if (spec_.dtype != DataType::kFloat32) {
      accumulator_row += spec_.heads * spec_.value_dim * static_cast<int64_t>(sizeof(float));
    }
    worker.accumulator_bytes =
        SaturatingAdd(SaturatingMultiply(queries, accumulator_row), HeadNumberBytes(spec_));
    if (spec_.ordering) worker.order_bytes = keys * kNumberBytes;
    if (QueriesCarrySlots(spec_)) worker.order_bytes += queries * kNumberBytes;
    if (NeedsPositions(spec_)) worker.order_bytes += queries * kNumberBytes;
    worker.list_bytes = std::ssize(rectangle_.pairs) * static_cast<int64_t>(sizeof(SequencePair));
    worker.exchange_buffer_bytes = RoundBuffersOf(spec_, rectangle_, keys_, rank, 0).bytes;
  }

  void AddTransfers(int from, int to) {
    const bool keys_travel = rectangle_.travels == Travels::kKeys;
    const Rows rows = Overlap(keys_travel ? RowsOfRank(keys_, from) : rectangle_.QueriesOf(from),
                              rectangle_.needed[to]);
    const int64_t there = keys_travel ? KeyRowBytes(spec_) : QueryRowBytes(spec_);
    const int64_t back = keys_travel ? 0 : PartialRowBytes(spec_);
    AddBytes(from, to, SaturatingMultiply(rows.count(), there));
    AddBytes(to, from, SaturatingMultiply(rows.count(), back));
    if (workers_ > kMostWorkersWithTransfers || rectangle_.rounds > kMostRoundsWithTransfers)
      return;
    for (int64_t round = 0; round < rectangle_.rounds; ++round) {
      const int64_t count = TravellingRows(rectangle_, keys_, from, to, round).count();
      if (count == 0) continue;
      const int64_t step = (keys_travel ? round : 2 * round) + 1;
      costs_.transfers.push_back({.step = step, .from = from, .to = to, .bytes = count * there});
      if (keys_travel) continue;
      costs_.transfers.push_back({.step = step + 1, .from = to, .to = from, .bytes = count * back});
    }
  }

  void AddBytes(int from, int to, int64_t bytes) {
    int64_t& sent = costs_.workers[from].bytes_sent;
    sent = SaturatingAdd(sent, bytes);
    int64_t& received = costs_.workers[to].bytes_received;
    received = SaturatingAdd(received, bytes);
  }

  void AddFlops(int rank) {
    const bool keys_travel = rectangle_.travels == Travels::kKeys;
    const Rows queries = keys_travel ? rectangle_.QueriesOf(rank) : Rows{0, spec_.tokens};
    const Rows keys = keys_travel ? Rows{0, KeyTokens(spec_)} : RowsOfRank(keys_, rank);
    for (const Phase& phase : phases_) {
      costs_.workers[rank].flops += 2.0 * static_cast<double>(spec_.head_dim + spec_.value_dim) *
                                    static_cast<double>(phase.heads()) *
                                    PairsOfRank(spec_, rectangle_, phase, queries, keys);
    }
  }

  const JobSpec& spec_;
  const Shards& keys_;
  const std::vector<Phase>& phases_;
  const Rectangle& rectangle_;
  const int workers_;
  Costs costs_;
};

Rectangle MakeRectangle(const JobSpec& spec, const Shards& keys, Travels travels) {
  const int workers = keys.workers();
  const bool keys_travel = travels == Travels::kKeys;
  Rectangle rectangle{.travels = travels,
                      .queries = EvenShards(spec.tokens, workers),
                      .pairs = SequencePairs(spec)};
  for (int rank = 0; rank < workers; ++rank) {
    const Rows there = keys_travel ? rectangle.QueriesOf(rank) : RowsOfRank(keys, rank);
    Rows& needed = rectangle.needed.emplace_back();
    const Side side = keys_travel ? &SequencePair::queries : &SequencePair::keys;
    for (const SequencePair& pair : PairsWith(rectangle.pairs, side, there)) {
      const Rows part = Overlap(there, RowsOf(pair.*side));
      needed = Hull(needed, keys_travel ? KeysThatAreSeen(spec, pair, part)
                                        : QueriesThatSee(spec, pair, part));
    }
  }
  const int64_t most_keys = MostOfRank(keys);
  const int64_t budget =
      std::max(kLeastRoundBytes,
               SaturatingMultiply(most_keys, KeyRowBytes(spec)) / kShardBytesOverRoundBytes);
  // The bytes that a peer holds for a row. Two rounds of keys are there at once. A query has its
  // partial result beside it, and the result returns to a buffer of the owner.
  const int64_t row =
      keys_travel ? 2 * KeyRowBytes(spec) : QueryRowBytes(spec) + 2 * PartialRowBytes(spec);
  const int64_t most = keys_travel ? most_keys : MostOfRank(rectangle.queries);
  rectangle.round_rows =
      std::clamp<int64_t>(budget / SaturatingMultiply(workers, row), 1, std::max<int64_t>(most, 1));
  rectangle.rounds = (most + rectangle.round_rows - 1) / rectangle.round_rows;
  return rectangle;
}

}  // namespace

Rows Overlap(const Rows& a, const Rows& b) {
  const Rows rows{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return rows.count() == 0 ? Rows{} : rows;
}

std::span<const SequencePair> PairsWith(std::span<const SequencePair> pairs, Side side,
                                        const Rows& rows) {
  const auto first = std::ranges::partition_point(
      pairs, [&](const SequencePair& pair) { return RowsOf(pair.*side).end <= rows.begin; });
  const auto last = std::partition_point(
      first, pairs.end(), [&](const SequencePair& pair) { return (pair.*side).begin < rows.end; });
  return {first, last};
}

Rows RowsOfRank(const Shards& shards, int rank) {
  const std::vector<ShardRange>& ranges = shards.OfRank(rank);
  return ranges.empty() ? Rows{} : Rows{ranges.front().begin, ranges.back().end};
}

Rows Rectangle::QueriesOf(int rank) const { return RowsOfRank(queries, rank); }

Rows TravellingRows(const Rectangle& rectangle, const Shards& keys, int from, int to,
                    int64_t round) {
  Rows rows =
      rectangle.travels == Travels::kKeys ? RowsOfRank(keys, from) : rectangle.QueriesOf(from);
  rows.begin += round * rectangle.round_rows;
  rows.end = std::min(rows.end, rows.begin + rectangle.round_rows);
  return from == to ? rows : Overlap(rows, rectangle.needed[to]);
}

bool QueriesCarrySlots(const JobSpec& spec) {
  return spec.ordering && spec.ordering->scope == OrderScope::kQkv;
}

int64_t QueryRowBytes(const JobSpec& spec) {
  return RowBytes(spec, TensorKind::kQ) + RowBytes(spec, TensorKind::kBiasCoords) +
         (QueriesCarrySlots(spec) ? kNumberBytes : 0);
}

int64_t PartialRowBytes(const JobSpec& spec) {
  return spec.heads * (spec.value_dim + 2) * static_cast<int64_t>(sizeof(float));
}

int64_t KeyRowBytes(const JobSpec& spec) {
  return RowBytes(spec, TensorKind::kK) + RowBytes(spec, TensorKind::kV) +
         RowBytes(spec, TensorKind::kBiasCoords);
}

RoundBuffers RoundBuffersOf(const JobSpec& spec, const Rectangle& rectangle, const Shards& keys,
                            int rank, int half) {
  RoundBuffers buffers;
  const int workers = keys.workers();
  buffers.peers.resize(workers);
  if (workers == 1) return buffers;
  const auto place = [&](int64_t rows, int64_t row_bytes) {
    const int64_t at = buffers.bytes;
    buffers.bytes = SaturatingAdd(at, BlockStride(SaturatingMultiply(rows, row_bytes)));
    return at;
  };
  // The most rows of a round.
  const auto most = [&](int from, int to) {
    const Rows all =
        rectangle.travels == Travels::kKeys ? RowsOfRank(keys, from) : rectangle.QueriesOf(from);
    const Rows rows = from == to ? all : Overlap(all, rectangle.needed[to]);
    return std::min(rows.count(), rectangle.round_rows);
  };
  if (rectangle.travels == Travels::kKeys) {
    for (int turn = 0; turn < 2; ++turn) {
      const int64_t packed = place(most(rank, rank), KeyRowBytes(spec));
      if (turn == half) buffers.packed = packed;
      for (int peer = 0; peer < workers; ++peer) {
        if (peer == rank) continue;
        const int64_t rows = place(most(peer, rank), KeyRowBytes(spec));
        if (turn == half) buffers.peers[peer].rows = rows;
      }
    }
    return buffers;
  }
  const int64_t slot = QueriesCarrySlots(spec) ? kNumberBytes : 0;
  const int64_t position = NeedsPositions(spec) ? kNumberBytes : 0;
  buffers.packed = place(most(rank, rank), RowBytes(spec, TensorKind::kQ));
  buffers.packed_slots = place(most(rank, rank), slot);
  const int64_t coordinates = RowBytes(spec, TensorKind::kBiasCoords);
  buffers.packed_coordinates = place(most(rank, rank), coordinates);
  for (int peer = 0; peer < workers; ++peer) {
    if (peer == rank) continue;
    const int64_t theirs = most(peer, rank);
    buffers.peers[peer] = {.rows = place(theirs, RowBytes(spec, TensorKind::kQ)),
                           .slots = place(theirs, slot),
                           .positions = place(theirs, position),
                           .coordinates = place(theirs, coordinates),
                           .partials = place(theirs, PartialRowBytes(spec)),
                           .returned = place(most(rank, peer), PartialRowBytes(spec))};
  }
  return buffers;
}

Shards EvenShards(int64_t rows, int workers) {
  std::vector<ShardRange> ranges;
  for (int rank = 0; rank < workers; ++rank) {
    const auto cut = [&](int part) {
      return static_cast<int64_t>(static_cast<__int128>(rows) * part / workers);
    };
    ranges.push_back({.begin = cut(rank), .end = cut(rank + 1), .rank = rank});
  }
  return Shards::Make(workers, ranges);
}

std::vector<SegmentRun> RunsOf(const JobSpec& spec, int branch, const SequencePair& pair,
                               const Rows& queries, const Rows& keys) {
  const Branch& pattern = spec.branches[branch];
  const int64_t length = SegmentLength(pattern, pair.keys);
  const int64_t to_slot = pair.keys.begin + pair.shift - pair.queries.begin;
  const Rows asking{queries.begin + to_slot, queries.end + to_slot};
  if (length == pair.keys.length && pattern.dilation == 1) {
    return {{.begin = pair.keys.begin,
             .length = length,
             .full_length = length,
             .queries = asking,
             .keys = keys}};
  }
  std::vector<SegmentRun> runs;
  // Segments are numbered from the sequence's first.
  const auto segment_of = [&](int64_t key) { return (key - pair.keys.begin) / length; };
  const int64_t sequence_end = pair.keys.begin + pair.keys.length;
  const auto add = [&](int64_t segment, int64_t count) {
    const int64_t begin = pair.keys.begin + segment * length;
    const Rows whole{begin, std::min(begin + length, sequence_end)};
    SegmentRun run{.begin = begin,
                   .length = length,
                   .count = count,
                   .full_length = length,
                   .queries = Overlap(whole, asking),
                   .keys = Overlap(whole, keys)};
    if (run.queries.count() > 0 && run.keys.count() > 0) runs.push_back(run);
  };
  const int64_t from = std::max(segment_of(asking.begin), segment_of(keys.begin));
  const int64_t to = std::min(segment_of(asking.end - 1), segment_of(keys.end - 1));
  const auto is_whole = [&](int64_t segment) {
    const int64_t begin = pair.keys.begin + segment * length;
    const int64_t end = begin + length;
    return end <= sequence_end && begin >= asking.begin && begin >= keys.begin &&
           end <= asking.end && end <= keys.end;
  };
  for (int64_t segment = from; segment <= to;) {
    // Only the first and the last two segments can be parts.
    if (is_whole(segment) && to - segment > 2) {
      add(segment, to - 1 - segment);
      segment = to - 1;
      continue;
    }
    add(segment++, 1);
  }
  return runs;
}

Progression SelectedOf(const SegmentRun& run, const Phase& phase, int64_t dilation,
                       const Rows& rows) {
  // Queries of a dense segment may lie outside of it.
  if (dilation == 1) return {.first = rows.begin, .step = 1, .count = rows.count()};
  return Selected(run.begin, phase.offset, dilation, rows.begin, rows.end);
}

RectanglePlan PlanRectangle(const JobSpec& spec, const Shards& keys,
                            const std::vector<Phase>& phases) {
  const auto plan = [&](Travels travels) {
    RectanglePlan made{.rectangle = MakeRectangle(spec, keys, travels)};
    made.costs = RectangleCosts(spec, keys, phases, made.rectangle).Compute();
    return made;
  };
  RectanglePlan by_queries = plan(Travels::kQueries);
  if (keys.workers() == 1) {
    by_queries.rectangle.why = "one worker holds all rows";
    return by_queries;
  }
  if (!HasDensePattern(spec)) {
    by_queries.rectangle.why = "the pattern is not one dense segment in the order of tokens";
    return by_queries;
  }
  RectanglePlan by_keys = plan(Travels::kKeys);
  const double queries_finish = BusiestFinish(by_queries.costs);
  const double keys_finish = BusiestFinish(by_keys.costs);
  RectanglePlan& best = keys_finish < queries_finish ? by_keys : by_queries;
  best.rectangle.why = absl::StrFormat(
      "queries and their results take %d bytes, keys and values %d; the busiest worker takes the "
      "time of %.3g flop, and of %.3g",
      by_queries.costs.bytes_exchanged, by_keys.costs.bytes_exchanged, queries_finish, keys_finish);
  return std::move(best);
}

}  // namespace hilbert_ring
