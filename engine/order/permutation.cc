#include "engine/order/permutation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/order/cell_region.h"
#include "engine/order/implicit_order.h"
#include "engine/order/stored_order.h"

namespace hilbert_ring {
namespace {

class Identity : public Permutation {
 public:
  int64_t resident_bytes() const override { return 0; }
  void Tokens(int64_t first_slot, std::span<int64_t> tokens) const override {
    std::iota(tokens.begin(), tokens.end(), first_slot);
  }
  void Slots(int64_t first_token, std::span<int64_t> slots) const override {
    std::iota(slots.begin(), slots.end(), first_token);
  }
};

// Runs of implicit squares or of one grid. Equal lengths share an order.
class ManyRuns : public Permutation {
 public:
  ManyRuns(const JobSpec& spec, int64_t max_stored_tokens)
      : ordering_(*spec.ordering), tokens_(KeyTokens(spec)), storable_tokens_(max_stored_tokens) {
    const std::vector<Sequence> sequences = Sequences(spec);
    sequences_.reserve(sequences.size());
    for (const Sequence& sequence : sequences) {
      // A window covers at most its sequence.
      const int64_t window =
          ordering_.window > 0 ? std::min(ordering_.window, sequence.length) : sequence.length;
      const int64_t last = (sequence.length - 1) % window + 1;
      sequences_.push_back({sequence.begin, OrderOfLength(window), OrderOfLength(last)});
    }
  }

  int64_t resident_bytes() const override {
    auto bytes = static_cast<int64_t>(sequences_.capacity() * sizeof(sequences_[0]));
    for (const auto& [length, order] : orders_) bytes += order->resident_bytes();
    return bytes;
  }

  void Tokens(int64_t first_slot, std::span<int64_t> tokens) const override {
    ForEachRun(first_slot, tokens, &Permutation::Tokens);
  }

  void Slots(int64_t first_token, std::span<int64_t> slots) const override {
    ForEachRun(first_token, slots, &Permutation::Slots);
  }

 private:
  struct SequenceOrder {
    int64_t begin = 0;
    const Permutation* order = nullptr;  // of each run except the last; owned by orders_
    const Permutation* last = nullptr;
  };

  const Permutation* OrderOfLength(int64_t length) {
    std::unique_ptr<const Permutation>& order = orders_[length];
    if (order != nullptr) return order.get();
    order = MakeImplicitOrder(ordering_.curve, ordering_.grid.empty()
                                                   ? CellRegion::Square(length)
                                                   : CellRegion::Grid(ordering_.grid));
    if (length <= storable_tokens_) {
      order = StoreOrder(*order, length);
      storable_tokens_ -= length;
    }
    return order.get();
  }

  // Fills `values` from place `first` on. Places are slots or tokens: a run is the same range of
  // both.
  void ForEachRun(int64_t first, std::span<int64_t> values,
                  void (Permutation::*direction)(int64_t, std::span<int64_t>) const) const {
    auto sequence =
        std::upper_bound(sequences_.begin(), sequences_.end(), first,
                         [](int64_t place, const SequenceOrder& s) { return place < s.begin; });
    while (!values.empty()) {
      const int64_t end = sequence == sequences_.end() ? tokens_ : sequence->begin;
      const SequenceOrder& own = *(sequence - 1);
      const int64_t window = ordering_.window > 0 ? ordering_.window : end - own.begin;
      while (!values.empty() && first < end) {
        const int64_t begin = first - (first - own.begin) % window;
        const bool is_last = end - begin <= window;
        const int64_t run_end = is_last ? end : begin + window;
        const auto count = std::min(static_cast<int64_t>(values.size()), run_end - first);
        const auto part = values.first(count);
        ((is_last ? own.last : own.order)->*direction)(first - begin, part);
        for (int64_t& value : part) value += begin;
        values = values.subspan(count);
        first += count;
      }
      ++sequence;
    }
  }

  const Ordering ordering_;
  const int64_t tokens_;
  int64_t storable_tokens_;                                       // budget of further lengths
  std::vector<SequenceOrder> sequences_;                          // in token order
  std::map<int64_t, std::unique_ptr<const Permutation>> orders_;  // by length
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Permutation>> Permutation::Make(
    const JobSpec& spec, std::span<const int64_t> coords, int64_t max_stored_tokens) {
  const int axes = spec.ordering.has_value() ? spec.ordering->coordinate_axes : 0;
  const auto given = static_cast<int64_t>(coords.size());
  const int64_t tokens = KeyTokens(spec);
  if (given != tokens * axes) {
    return absl::InvalidArgumentError(absl::StrCat("ordering.coords has ", given,
                                                   " numbers, must have ", tokens * axes, ": ",
                                                   axes, " for each of ", tokens, " tokens"));
  }
  if (!spec.ordering.has_value()) return std::make_shared<const Identity>();
  if (axes == 0) return std::make_shared<const ManyRuns>(spec, max_stored_tokens);
  return StoreCoordinateOrder(spec.ordering->curve, axes, Sequences(spec), coords);
}

}  // namespace hilbert_ring
