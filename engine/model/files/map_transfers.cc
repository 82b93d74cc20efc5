#include "engine/model/files/map_transfers.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "engine/plan/pattern.h"

namespace hilbert_ring {
namespace {

// Returns whether a slide's class token sees any of its slots [begin, end) in any head.
bool Sees(const EncoderPlan& plan, int64_t slide, int64_t begin, int64_t end) {
  const JobSpec& spec = plan.attention.spec;
  const int64_t origin = plan.rows.FirstToken(slide);
  const Sequence sequence{.begin = origin, .length = plan.rows.FirstToken(slide + 1) - origin};
  return std::ranges::any_of(plan.attention.phases, [&](const Phase& phase) {
    const Branch& branch = spec.branches[phase.branch];
    const int64_t last = std::min(end, origin + SegmentLength(branch, sequence));
    return SelectsFirst(phase) && begin < last &&
           Selected(origin, 0, branch.dilation, begin, last).count > 0;
  });
}

}  // namespace

bool SelectsFirst(const Phase& phase) { return phase.offset == 0; }

int64_t MapQueryBytes(const EncoderPlan& plan) {
  return plan.config.embed_dim * ElementBytes(plan.attention.spec.dtype);
}

int64_t MapRowBytes(const EncoderPlan& plan) {
  return MapQueryBytes(plan) + plan.config.heads * static_cast<int64_t>(sizeof(float));
}

int64_t MapExchangeBytes(const EncoderPlan& plan, int rank) {
  std::set<int64_t> slides;
  for (const MapTransfer& transfer : MapTransfers(plan)) {
    if (transfer.from == rank || transfer.to == rank) slides.insert(transfer.slide);
  }
  return std::ssize(slides) * MapRowBytes(plan);
}

std::vector<MapTransfer> MapTransfers(const EncoderPlan& plan) {
  std::vector<MapTransfer> transfers;
  const Shards& shards = plan.attention.shards;
  // A rank lacks the class tokens of slides that begin before one of its ranges.
  for (const ShardRange& range : shards.ranges()) {
    const int64_t slide = plan.rows.SlideOf(range.begin);
    const int64_t first = plan.rows.FirstToken(slide);
    const int owner = shards.Find(first).rank;
    const int64_t end = std::min(range.end, plan.rows.FirstToken(slide + 1));
    if (owner == range.rank || !Sees(plan, slide, range.begin, end)) continue;
    transfers.push_back({.slide = slide, .from = owner, .to = range.rank});
  }
  const auto key = [](const MapTransfer& transfer) {
    return std::tuple(transfer.slide, transfer.from, transfer.to);
  };
  std::ranges::sort(transfers, {}, key);
  const auto same = [&key](const MapTransfer& a, const MapTransfer& b) { return key(a) == key(b); };
  transfers.erase(std::unique(transfers.begin(), transfers.end(), same), transfers.end());
  return transfers;
}

}  // namespace hilbert_ring
