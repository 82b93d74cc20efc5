#include "engine/plan/rank_schedule.h"

#include <algorithm>

#include "engine/plan/step_bytes.h"

namespace hilbert_ring {
namespace {

// A block's passage through this rank.
struct Passage {
  int exchange = 0, block = 0;
  int64_t bytes = 0;
  int64_t step = 0;        // of its arrival; 0 for an own block
  int from = -1, to = -1;  // the ranks before and after this one
};

std::vector<Passage> PassagesOf(const Plan& plan, int rank, std::vector<RankExchange>& exchanges) {
  std::vector<Passage> passages;
  for (size_t s = 0; s < plan.segments.spanning.size(); ++s) {
    const SpanningSegment& segment = plan.segments.spanning[s];
    const PhaseRange of_branch = PhasesOf(plan.phases, segment.branch);
    for (size_t p = of_branch.begin; p < of_branch.end; ++p) {
      const Phase& phase = plan.phases[p];
      PhaseExchange exchange(plan.spec, segment, phase);
      if (!std::binary_search(exchange.ranks().begin(), exchange.ranks().end(), rank)) continue;
      const int64_t row_bytes = BlockRowBytes(plan.spec, phase);
      for (size_t b = 0; b < exchange.blocks().size(); ++b) {
        const Block& block = exchange.blocks()[b];
        std::vector<int> way = exchange.Route(block);
        way.insert(way.begin(), block.rank);
        const auto here = std::find(way.begin(), way.end(), rank);
        if (way.size() == 1 || here == way.end()) continue;
        passages.push_back({.exchange = static_cast<int>(exchanges.size()),
                            .block = static_cast<int>(b),
                            .bytes = SaturatingMultiply(block.rows.count, row_bytes),
                            .step = here - way.begin(),
                            .from = here == way.begin() ? -1 : *(here - 1),
                            .to = here + 1 == way.end() ? -1 : *(here + 1)});
      }
      exchanges.push_back({.segment = static_cast<int>(s),
                           .phase = static_cast<int>(p),
                           .all = std::move(exchange)});
    }
  }
  return passages;
}

}  // namespace

RankSchedule MakeRankSchedule(const Plan& plan, int rank) {
  RankSchedule schedule;
  const std::vector<Passage> passages = PassagesOf(plan, rank, schedule.exchanges);
  StepBytes step_bytes(1);
  std::vector<int64_t> held(plan.costs.steps + 2, 0);  // bytes by step
  for (const Passage& passage : passages) {
    step_bytes.Add(0, passage.step, passage.bytes);
    held[passage.step] = SaturatingAdd(held[passage.step], BlockStride(passage.bytes));
  }
  schedule.arena_bytes = step_bytes.ArenaBytes(0);
  schedule.steps.resize(plan.costs.steps);
  std::vector<int64_t> next(held.size(), 0);  // free place by step
  for (size_t step = 1; step < next.size(); step += 2) {
    next[step] = schedule.arena_bytes - held[step];
  }
  for (const Passage& passage : passages) {
    const int64_t offset = next[passage.step];
    next[passage.step] = SaturatingAdd(offset, BlockStride(passage.bytes));
    const ArenaBlock block{.exchange = passage.exchange,
                           .block = passage.block,
                           .offset = offset,
                           .bytes = passage.bytes};
    if (passage.step == 0) {
      schedule.packed.push_back(block);
    } else {
      ScheduleStep& step = schedule.steps[passage.step - 1];
      step.receives.push_back({.peer = passage.from, .offset = offset, .bytes = passage.bytes});
      step.arrived.push_back(block);
    }
    if (passage.to >= 0) {
      schedule.steps[passage.step].sends.push_back(
          {.peer = passage.to, .offset = offset, .bytes = passage.bytes});
    }
  }
  return schedule;
}

}  // namespace hilbert_ring
