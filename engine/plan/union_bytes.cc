// The union over branches of what a rank receives: several branches may select the same row of the
// same kv head, and each exchanges it on its own.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "engine/plan/cost.h"

namespace hilbert_ring {
namespace {

// What counting may take for a whole plan, about two seconds; beyond it, sums stand for unions.
class Effort {
 public:
  explicit Effort(Cancellation& cancellation) : cancellation_(cancellation) {}

  // False when `units` (some nanoseconds each) are no longer there, or nobody wants them.
  bool Take(int64_t units) {
    if (cancellation_.Step()) left_ = 0;
    if (units > left_) return false;
    left_ -= units;
    return true;
  }

 private:
  Cancellation& cancellation_;
  int64_t left_ = int64_t{1} << 27;
};

constexpr int64_t kMeetUnits = 256;  // of Meet: a chain of 128-bit divisions
constexpr int64_t kCopyUnits = 16;   // of a Need

// Slots first, first + step, ... below `end`, for kv heads [kv_begin, kv_end).
struct Need {
  Progression rows;
  int64_t end = 0;
  int branch = 0;
  int64_t kv_begin = 0, kv_end = 0;
};

// Slots value, value + modulus, ... Two classes meet in one class of their least common multiple,
// or not at all.
struct Residue {
  __int128 value = 0, modulus = 1;
};

// Only members in [0, end) matter: a class that has none there is no class, and a modulus beyond it
// is cut to it, which leaves the same members.
std::optional<Residue> Meet(const Residue& a, const Residue& b, int64_t end) {
  // Steps a.value on by a.modulus until it fits b; extended Euclid gives the number of steps.
  __int128 r0 = a.modulus, r1 = b.modulus, s0 = 1, s1 = 0;
  while (r1 != 0) {
    const __int128 q = r0 / r1;
    std::tie(r0, r1) = std::make_pair(r1, r0 - q * r1);
    std::tie(s0, s1) = std::make_pair(s1, s0 - q * s1);
  }
  const __int128 gcd = r0, distance = b.value - a.value;
  if (distance % gcd != 0) return std::nullopt;
  const __int128 rounds = b.modulus / gcd;
  const __int128 steps = ((distance / gcd % rounds) * (s0 % rounds) % rounds + rounds) % rounds;
  const __int128 value = a.value + a.modulus * steps;
  if (value >= end) return std::nullopt;
  return Residue{value, std::min<__int128>(a.modulus * rounds, end)};
}

int64_t CountIn(const Residue& residue, int64_t begin, int64_t end) {
  const __int128 past =
      ((begin - residue.value) % residue.modulus + residue.modulus) % residue.modulus;
  const __int128 first = past == 0 ? begin : begin + (residue.modulus - past);
  return first >= end ? 0 : static_cast<int64_t>((end - 1 - first) / residue.modulus + 1);
}

bool Contains(const Residue& outer, const Residue& inner) {
  return inner.modulus % outer.modulus == 0 && (inner.value - outer.value) % outer.modulus == 0;
}

// |A1 u A2 u ...| of residue classes within [begin, end), by inclusion and exclusion.
class UnionCount {
 public:
  UnionCount(const std::vector<Residue>& sets, int64_t begin, int64_t end, Effort& effort)
      : begin_(begin), end_(end), effort_(effort) {
    constexpr int64_t kContainsUnits = 16;
    const auto count = static_cast<int64_t>(sets.size());
    exact_ = effort.Take(count * count * kContainsUnits);
    for (size_t i = 0; i < sets.size(); ++i) {
      bool covered = !exact_;
      for (size_t j = 0; j < sets.size() && !covered; ++j) {
        covered = i != j && Contains(sets[j], sets[i]) && (j < i || !Contains(sets[i], sets[j]));
      }
      if (!covered || !exact_) sets_.push_back(sets[i]);
    }
  }

  // An upper bound (the sum) for patterns with so many coprime dilations that the terms run away.
  int64_t Count() {
    int64_t total = 0, sum = 0;
    for (size_t i = 0; i < sets_.size(); ++i) {
      sum = SaturatingAdd(sum, CountIn(sets_[i], begin_, end_));
      if (exact_) total += Visit(sets_[i], i + 1);
    }
    return exact_ ? total : std::min(sum, end_ - begin_);
  }

 private:
  // Rows of `set` that no set from `next` on holds.
  int64_t Visit(const Residue& set, size_t next) {
    int64_t total = CountIn(set, begin_, end_);
    if (total == 0 || !exact_) return 0;
    exact_ = effort_.Take(static_cast<int64_t>(sets_.size() - next + 1) * kMeetUnits);
    for (size_t i = next; i < sets_.size() && exact_; ++i) {
      if (const auto both = Meet(set, sets_[i], end_)) total -= Visit(*both, i + 1);
    }
    return total;
  }

  std::vector<Residue> sets_;
  const int64_t begin_, end_;
  Effort& effort_;
  bool exact_ = true;
};

int64_t SumOfRows(const std::vector<Need>& needs) {
  int64_t rows = 0;
  for (const Need& need : needs) rows = SaturatingAdd(rows, need.rows.count);
  return rows;
}

int64_t UnionRows(const std::vector<Need>& needs, Effort& effort) {
  std::vector<int64_t> edges;
  for (const Need& need : needs) {
    edges.push_back(need.rows.first);
    edges.push_back(need.end);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  if (!effort.Take(static_cast<int64_t>(edges.size() * needs.size()))) return SumOfRows(needs);
  int64_t rows = 0;
  for (size_t e = 0; e + 1 < edges.size(); ++e) {
    std::vector<Residue> active;
    for (const Need& need : needs) {
      if (need.rows.first <= edges[e] && need.end >= edges[e + 1]) {
        active.push_back({need.rows.first, need.rows.step});
      }
    }
    rows += UnionCount(active, edges[e], edges[e + 1], effort).Count();
  }
  return rows;
}

// What a rank needs of others' rows, runs of blocks of one phase joined.
std::vector<Need> NeedsOf(int rank, const std::vector<std::pair<Phase, PhaseExchange>>& exchanges) {
  std::vector<Need> needs;
  for (const auto& [phase, exchange] : exchanges) {
    if (!std::binary_search(exchange.ranks().begin(), exchange.ranks().end(), rank)) continue;
    bool joins = false;
    for (const Block& block : exchange.blocks()) {
      const bool wanted = block.rank != rank && exchange.Needs(rank, block);
      if (wanted && joins) {
        needs.back().rows.count += block.rows.count;
        needs.back().end = block.rows.last() + 1;
      } else if (wanted) {
        needs.push_back({.rows = block.rows,
                         .end = block.rows.last() + 1,
                         .branch = phase.branch,
                         .kv_begin = phase.kv_begin,
                         .kv_end = phase.kv_end});
      }
      joins = wanted;
    }
  }
  return needs;
}

// Rows times kv heads of the union.
int64_t UnionRowHeads(const std::vector<Need>& needs, Effort& effort) {
  std::vector<int64_t> edges;
  for (const Need& need : needs) {
    edges.push_back(need.kv_begin);
    edges.push_back(need.kv_end);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  int64_t total = 0;
  if (!effort.Take(static_cast<int64_t>(edges.size() * needs.size()) * kCopyUnits)) {
    for (const Need& need : needs) {
      total =
          SaturatingAdd(total, SaturatingMultiply(need.rows.count, need.kv_end - need.kv_begin));
    }
    return total;
  }
  for (size_t e = 0; e + 1 < edges.size(); ++e) {
    std::vector<Need> of_heads;
    for (const Need& need : needs) {
      if (need.kv_begin <= edges[e] && need.kv_end >= edges[e + 1]) of_heads.push_back(need);
    }
    total = SaturatingAdd(total,
                          SaturatingMultiply(UnionRows(of_heads, effort), edges[e + 1] - edges[e]));
  }
  return total;
}

}  // namespace

int64_t UnionBytes(const JobSpec& spec, const Shards& shards, const std::vector<Phase>& phases,
                   const Segments& segments, int64_t sum, Cancellation& cancellation) {
  constexpr int64_t kNeedsUnits = 16;
  Effort effort(cancellation);
  std::vector<std::pair<Phase, PhaseExchange>> exchanges;
  for (const SpanningSegment& segment : segments.spanning) {
    const PhaseRange of_branch = PhasesOf(phases, segment.branch);
    // Every exchange is asked for the needs of every rank.
    const auto visits = static_cast<int64_t>(of_branch.end - of_branch.begin) * shards.workers();
    if (!effort.Take(visits * kNeedsUnits)) return sum;
    for (size_t p = of_branch.begin; p < of_branch.end; ++p) {
      exchanges.emplace_back(phases[p], PhaseExchange(spec, segment, phases[p]));
    }
  }
  const int64_t head_bytes = (spec.head_dim + spec.value_dim) * ElementBytes(spec.dtype);
  int64_t bytes = 0;
  for (int rank = 0; rank < shards.workers() && !cancellation.Ask(); ++rank) {
    const std::vector<Need> needs = NeedsOf(rank, exchanges);
    if (needs.empty()) continue;
    bytes = SaturatingAdd(bytes, SaturatingMultiply(UnionRowHeads(needs, effort), head_bytes));
    if (MaskNeedsPositions(spec)) {
      bytes = SaturatingAdd(bytes, SaturatingMultiply(UnionRows(needs, effort),
                                                      static_cast<int64_t>(sizeof(int64_t))));
    }
  }
  return std::min(bytes, sum);
}

}  // namespace hilbert_ring
