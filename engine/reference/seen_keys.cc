#include "engine/reference/seen_keys.h"

#include <algorithm>
#include <span>

#include "engine/order/permutation.h"

namespace hilbert_ring {
namespace {

// Slots are read in runs of this length, so that no segment is listed whole.
constexpr int64_t kRun = 4096;

int64_t OffsetOf(const JobSpec& spec, int64_t branch, int64_t head) {
  const int64_t dilation = spec.branches[branch].dilation;
  if (spec.mixing == Mixing::kHeadGroups) return branch % dilation;
  return head / ((spec.heads - 1) / dilation + 1);
}

}  // namespace

std::vector<int64_t> BranchesOf(const JobSpec& spec, int64_t head) {
  const auto branches = static_cast<int64_t>(spec.branches.size());
  std::vector<int64_t> own;
  int64_t begin = 0;
  for (int64_t i = 0; i < branches; ++i) {
    const int64_t size = spec.heads / branches + (i < spec.heads % branches ? 1 : 0);
    if (spec.mixing == Mixing::kLse || (head >= begin && head < begin + size)) own.push_back(i);
    begin += size;
  }
  return own;
}

SeenKeys::SeenKeys(const JobSpec& spec, const Permutation& order, int64_t token)
    : spec_(spec), order_(order) {
  for (const SequencePair& pair : SequencePairs(spec)) {
    const int64_t row = token - pair.queries.begin;
    if (row < 0 || row >= pair.queries.length) continue;
    sequence_ = pair.keys;
    position_ = slot_ = pair.keys.begin + row + pair.shift;
  }
  if (spec.ordering && spec.ordering->scope == OrderScope::kQkv && sequence_.length > 0) {
    order.Slots(position_, std::span<int64_t>(&slot_, 1));
  }
}

int64_t SeenKeys::Visit(int64_t branch, int64_t head,
                        const std::function<void(int64_t)>& key) const {
  if (sequence_.length == 0) return 0;
  const Branch& pattern = spec_.branches[branch];
  const int64_t length = std::min(pattern.segment, sequence_.length);
  const bool dense = length == sequence_.length && pattern.dilation == 1;
  const int64_t place = slot_ - sequence_.begin;
  const int64_t start = dense ? 0 : place / length * length;
  int64_t end = std::min(start + length, sequence_.length);
  int64_t offset = OffsetOf(spec_, branch, head);
  const int64_t ahead = place - start - offset;
  if (!dense && (ahead < 0 || ahead % pattern.dilation != 0)) return 0;
  if (spec_.window) {  // slots are positions: Validate refuses it with a dilation or an ordering
    const Window& window = *spec_.window;
    if (window.left) offset = std::max<int64_t>(0, ahead - *window.left);
    if (window.right && *window.right < end - place) end = place + *window.right + 1;
  }
  int64_t selected = 0;
  std::vector<int64_t> tokens;
  int64_t run_begin = -1;
  for (int64_t row = start + offset; row < end; ++selected) {
    if (run_begin < 0 || row >= run_begin + static_cast<int64_t>(tokens.size())) {
      run_begin = row;
      tokens.resize(std::min(pattern.dilation < kRun ? kRun : 1, end - row));
      order_.Tokens(sequence_.begin + row, tokens);
    }
    const int64_t token = tokens[row - run_begin];
    if (!spec_.causal || token <= position_) key(token);
    if (pattern.dilation >= end - row) {
      ++selected;
      break;
    }
    row += pattern.dilation;
  }
  if (spec_.tail != Tail::kZero || spec_.causal) return 0;
  return (length - 1) / pattern.dilation + 1 - selected;
}

}  // namespace hilbert_ring
