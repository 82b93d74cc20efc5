// Cuts shards on a line on which mirrored segments are folded: place x stands for slots x/2 from
// the segment's start and x/2 from its end. A contiguous share of the line holds equal parts of the
// cheap start and the expensive end.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/plan/pattern.h"
#include "engine/plan/shards.h"

namespace hilbert_ring {
namespace {

class Cutter {
 public:
  Cutter(const JobSpec& spec, int workers, int64_t mirror_length)
      : spec_(spec),
        workers_(workers),
        mirror_(mirror_length),
        sequences_(Sequences(spec)),
        branch_heads_(spec.branches.size(), 0),
        branch_kv_heads_(spec.branches.size(), 0) {
    for (const Phase& phase : Phases(spec)) {
      branch_heads_[phase.branch] += phase.heads();
      branch_kv_heads_[phase.branch] += phase.kv_heads();
    }
    work_before_.reserve(sequences_.size() + 1);
    work_before_.push_back(0);
    for (const Sequence& sequence : sequences_) {
      work_before_.push_back(work_before_.back() + WorkIn(sequence, sequence.length));
    }
  }

  Shards Cut() const {
    std::vector<int64_t> cuts = {0};
    for (int i = 1; i < workers_; ++i) cuts.push_back(std::max(cuts.back(), ChooseCut(i)));
    cuts.push_back(spec_.tokens);
    std::vector<ShardRange> ranges;
    for (int rank = 0; rank < workers_; ++rank) Unfold(cuts[rank], cuts[rank + 1], rank, ranges);
    std::sort(ranges.begin(), ranges.end(), [](const ShardRange& a, const ShardRange& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    return Shards::Make(workers_, ranges);
  }

 private:
  struct Fold {
    int64_t begin = 0, end = 0;  // slots
  };

  const Sequence& SequenceAt(int64_t slot) const {
    return *(std::upper_bound(sequences_.begin(), sequences_.end(), slot,
                              [](int64_t s, const Sequence& q) { return s < q.begin; }) -
             1);
  }

  // The mirrored segment that holds a place strictly inside; empty if there is no such segment.
  Fold FoldAt(int64_t place) const {
    if (mirror_ == 0 || place <= 0 || place >= spec_.tokens) return {};
    const Sequence& sequence = SequenceAt(place);
    const int64_t length = std::min(mirror_, sequence.length);
    const int64_t begin = sequence.begin + (place - sequence.begin) / length * length;
    if (begin == place) return {};
    return {begin, std::min(begin + length, sequence.begin + sequence.length)};
  }

  // Work in (query, key, head) pairs of a sequence's first `x` places: exact for whole segments,
  // linear inside a mirrored one.
  double WorkIn(const Sequence& sequence, int64_t x) const {
    double work = 0;
    for (size_t i = 0; i < spec_.branches.size(); ++i) {
      const int64_t length = SegmentLength(spec_.branches[i], sequence);
      const double r = static_cast<double>(spec_.branches[i].dilation);
      const double whole = std::ceil(static_cast<double>(length) / r);
      const int64_t before = x / length;
      const auto part = static_cast<double>(x % length) / r;
      const auto last =
          static_cast<double>(std::min(length, sequence.length - before * length)) / r;
      double pairs = static_cast<double>(before) * whole * whole + part * last;
      if (HasWindow(spec_)) {
        const double of_last = PairsOfFirst(last, last);
        pairs = static_cast<double>(before) * PairsOfFirst(whole, whole) +
                (mirror_ > 0 ? of_last * part / last : PairsOfFirst(part, last));
      } else if (spec_.causal) {
        pairs = static_cast<double>(before) * whole * whole / 2 +
                (mirror_ > 0 ? part * last / 2 : part * part / 2);
      }
      work += pairs * static_cast<double>(branch_heads_[i]);
    }
    return work;
  }

  // Pairs of the first x rows of a windowed segment.
  double PairsOfFirst(double x, double length) const {
    // The sum of min(y, bound) over the first `rows` numbers y.
    const auto sum = [](double rows, int64_t bound) {
      const double most = std::min(rows, static_cast<double>(bound) + 1);
      return most * (most - 1) / 2 + (rows - most) * static_cast<double>(bound);
    };
    return x + sum(x, reach_.left) + sum(length, reach_.right) - sum(length - x, reach_.right);
  }

  double WorkBefore(int64_t place) const {
    if (place >= spec_.tokens) return work_before_.back();
    const Sequence& sequence = SequenceAt(place);
    return work_before_[&sequence - sequences_.data()] + WorkIn(sequence, place - sequence.begin);
  }

  // Exchange cost of a cut at this slot: the selected rows of the segments that it cuts.
  double SlotCost(int64_t slot) const {
    if (slot <= 0 || slot >= spec_.tokens) return 0;
    const Sequence& sequence = SequenceAt(slot);
    const int64_t x = slot - sequence.begin;
    double cost = 0;
    for (size_t i = 0; i < spec_.branches.size(); ++i) {
      const int64_t length = SegmentLength(spec_.branches[i], sequence);
      if (x % length == 0) continue;
      cost += static_cast<double>(length) / static_cast<double>(spec_.branches[i].dilation) *
              static_cast<double>(branch_kv_heads_[i]);
    }
    return cost;
  }

  double CutCost(int64_t place) const {
    const Fold fold = FoldAt(place);
    if (fold.end == 0) return SlotCost(place);
    const int64_t x = place - fold.begin;
    return SlotCost(fold.begin + x / 2) + SlotCost(fold.end - (x - x / 2));
  }

  // Places near `target` at which a cut may cost nothing for some branch.
  std::vector<int64_t> Candidates(int64_t target) const {
    std::vector<int64_t> places = {target};
    if (target >= spec_.tokens) return places;
    const Sequence& sequence = SequenceAt(target);
    places.push_back(sequence.begin);
    places.push_back(sequence.begin + sequence.length);
    const Fold fold = FoldAt(target);
    for (const Branch& branch : spec_.branches) {
      const int64_t length = SegmentLength(branch, sequence);
      const int64_t x = target - sequence.begin;
      places.push_back(sequence.begin + x / length * length);
      places.push_back(std::min(places.back() + length, sequence.begin + sequence.length));
      if (fold.end == 0) continue;
      // Puts both slots of the folded place on boundaries of the branch.
      const int64_t half = (target - fold.begin) / 2;
      places.push_back(fold.begin + 2 * (half / length * length));
      places.push_back(fold.begin + 2 * ((half / length + 1) * length));
    }
    return places;
  }

  int64_t ChooseCut(int i) const {
    const double mean = static_cast<double>(spec_.tokens) / workers_;
    const auto even = static_cast<int64_t>(static_cast<__int128>(spec_.tokens) * i / workers_);
    const auto slack = static_cast<int64_t>(mean * (kMaxRowsOverMean - 1) / 2);
    const int64_t low = even - slack, high = even + slack;
    const int64_t target = std::clamp(PlaceOfWork(i), low, high);
    int64_t best = target;
    double best_cost = std::numeric_limits<double>::infinity();
    for (const int64_t center : {target, even}) {
      for (const int64_t place : Candidates(center)) {
        if (place < low || place > high) continue;
        const double cost = CutCost(place);
        const bool nearer = std::abs(place - target) < std::abs(best - target);
        if (cost < best_cost || (cost == best_cost && nearer)) {
          best = place;
          best_cost = cost;
        }
      }
    }
    return best;
  }

  // The place that i / workers of the work lies before.
  int64_t PlaceOfWork(int i) const {
    const double target = work_before_.back() * i / workers_;
    int64_t low = 0, high = spec_.tokens;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (WorkBefore(middle) < target) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  // Slots of the places [begin, end).
  void Unfold(int64_t begin, int64_t end, int rank, std::vector<ShardRange>& ranges) const {
    while (begin < end) {
      Fold fold = FoldAt(begin);
      if (fold.end == 0) {
        // Whole segments up to the fold that `end` cuts, if it cuts one.
        const Fold last = FoldAt(end);
        if (last.end == 0) {
          ranges.push_back({.begin = begin, .end = end, .rank = rank});
          return;
        }
        if (begin < last.begin) {
          ranges.push_back({.begin = begin, .end = last.begin, .rank = rank});
        }
        begin = last.begin;
        fold = last;
      }
      const int64_t stop = std::min(end, fold.end);
      const int64_t x0 = begin - fold.begin, x1 = stop - fold.begin;
      ranges.push_back({.begin = fold.begin + x0 / 2, .end = fold.begin + x1 / 2, .rank = rank});
      ranges.push_back(
          {.begin = fold.end - (x1 - x1 / 2), .end = fold.end - (x0 - x0 / 2), .rank = rank});
      begin = stop;
    }
  }

  const JobSpec& spec_;
  const Reach reach_ = ReachOf(spec_);
  const int workers_;
  const int64_t mirror_;
  const std::vector<Sequence> sequences_;
  std::vector<int64_t> branch_heads_, branch_kv_heads_;
  std::vector<double> work_before_;  // by sequence
};

}  // namespace

Shards CutShards(const JobSpec& spec, int workers, int64_t mirror_length) {
  if (workers == 1) return Shards::Make(1, {{.begin = 0, .end = spec.tokens}});
  return Cutter(spec, workers, mirror_length).Cut();
}

}  // namespace hilbert_ring
