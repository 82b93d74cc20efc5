#include "tests/plan/plan_simulation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {
namespace {

absl::Status Wrong(const std::string& what) { return absl::InternalError(what); }

}  // namespace

std::set<Pair> PairsByDefinition(const JobSpec& spec) {
  std::set<Pair> pairs;
  const auto branches = static_cast<int64_t>(spec.branches.size());
  const Reach reach = ReachOf(spec);
  for (const Sequence& sequence : Sequences(spec)) {
    for (int64_t branch = 0, group_begin = 0; branch < branches; ++branch) {
      const Branch& b = spec.branches[branch];
      const int64_t group = spec.heads / branches + (branch < spec.heads % branches);
      for (int64_t head = 0; head < spec.heads; ++head) {
        int64_t offset = branch % b.dilation;
        if (spec.mixing == Mixing::kHeadGroups) {
          if (head < group_begin || head >= group_begin + group) continue;
        } else {
          offset = head / ((spec.heads + b.dilation - 1) / b.dilation);
        }
        const int64_t length = std::min(b.segment, sequence.length);
        for (int64_t start = 0; start < sequence.length; start += length) {
          std::vector<int64_t> rows;
          const int64_t end = std::min(start + length, sequence.length);
          for (int64_t row = start + offset; row < end; row += b.dilation) {
            rows.push_back(sequence.begin + row);
          }
          for (const int64_t q : rows) {
            for (const int64_t k : rows) {
              if (k - q <= reach.right && q - k <= reach.left) {
                pairs.insert({static_cast<int>(branch), head, q, k});
              }
            }
          }
        }
      }
      group_begin += group;
    }
  }
  return pairs;
}

PlanSimulation::PlanSimulation(const Plan& plan)
    : plan_(plan), received_(plan.shards.workers(), 0) {
  for (int rank = 0; rank < plan.shards.workers(); ++rank) {
    schedules_.push_back(MakeRankSchedule(plan, rank));
  }
}

absl::Status PlanSimulation::Run() {
  absl::Status status;
  for (const LocalSegments& run : plan_.segments.local) status.Update(ComputeLocal(run));
  for (int rank = 0; rank < plan_.shards.workers(); ++rank) {
    status.Update(CheckArena(rank));
    for (const RankExchange& exchange : schedules_[rank].exchanges) {
      for (const Block& own : exchange.all.blocks()) {
        if (own.rank == rank) status.Update(ComputeBlock(rank, exchange, own));
      }
    }
  }
  for (int64_t step = 1; step <= plan_.costs.steps; ++step) status.Update(Step(step));
  return status;
}

absl::Status PlanSimulation::Compute(int rank, const Phase& phase, const Progression& queries,
                                     const Progression& keys) {
  const Reach reach = ReachOf(plan_.spec);
  for (int64_t i = 0; i < queries.count; ++i) {
    const int64_t q = queries.first + i * queries.step;
    if (plan_.shards.Find(q).rank != rank) {
      return Wrong(absl::StrCat("rank ", rank, " computes query ", q, " of another rank"));
    }
    for (int64_t j = 0; j < keys.count; ++j) {
      const int64_t k = keys.first + j * keys.step;
      if (k - q > reach.right || q - k > reach.left) continue;
      for (int64_t head = phase.head_begin; head < phase.head_end; ++head) {
        if (!pairs_.insert({phase.branch, head, q, k}).second) {
          return Wrong(absl::StrCat("query ", q, " and key ", k, " are computed twice"));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlanSimulation::ComputeLocal(const LocalSegments& run) {
  for (const Phase& phase : plan_.phases) {
    if (phase.branch != run.branch) continue;
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t begin = run.begin + i * run.length;
      const Progression rows = Selected(
          begin, phase.offset, plan_.spec.branches[run.branch].dilation, begin, begin + run.length);
      if (rows.count == 0) continue;
      // A single range must hold the segment, so that its rows are one strided view.
      if (&plan_.shards.Find(begin) != &plan_.shards.Find(begin + run.length - 1)) {
        return Wrong(absl::StrCat("the local segment at ", begin, " lies over two ranges"));
      }
      if (absl::Status s = Compute(run.rank, phase, rows, rows); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

absl::Status PlanSimulation::ComputeBlock(int rank, const RankExchange& exchange,
                                          const Block& keys) {
  for (const Block& queries : exchange.all.blocks()) {
    if (queries.rank != rank) continue;
    absl::Status s = Compute(rank, plan_.phases[exchange.phase], queries.rows, keys.rows);
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status PlanSimulation::CheckArena(int rank) const {
  const RankSchedule& schedule = schedules_[rank];
  if (schedule.arena_bytes != plan_.costs.workers[rank].exchange_buffer_bytes) {
    return Wrong("the arena's size is not the plan's");
  }
  std::vector<ArenaBlock> before = schedule.packed;
  for (const ScheduleStep& step : schedule.steps) {
    std::vector<ArenaBlock> both = before;
    both.insert(both.end(), step.arrived.begin(), step.arrived.end());
    std::sort(both.begin(), both.end(),
              [](const ArenaBlock& a, const ArenaBlock& b) { return a.offset < b.offset; });
    int64_t free = 0;
    for (const ArenaBlock& block : both) {
      if (block.offset < free) return Wrong("blocks of neighbouring steps overlap in the arena");
      free = block.offset + block.bytes;
    }
    if (free > schedule.arena_bytes) return Wrong("a block ends behind the arena");
    before = step.arrived;
  }
  return absl::OkStatus();
}

PlanSimulation::BlockId PlanSimulation::IdOf(int rank, const ArenaBlock& block) const {
  const RankExchange& exchange = schedules_[rank].exchanges[block.exchange];
  return {exchange.segment, exchange.phase, exchange.all.blocks()[block.block].rows.first};
}

std::map<int64_t, PlanSimulation::BlockId> PlanSimulation::Held(int rank, int64_t step) const {
  std::map<int64_t, BlockId> held;
  const RankSchedule& schedule = schedules_[rank];
  for (const ArenaBlock& block : step == 0 ? schedule.packed : schedule.steps[step - 1].arrived) {
    held[block.offset] = IdOf(rank, block);
  }
  return held;
}

absl::Status PlanSimulation::Step(int64_t step) {
  // Blocks by (from, to), in each side's order.
  std::map<std::pair<int, int>, std::vector<BlockId>> sent, awaited;
  for (int rank = 0; rank < plan_.shards.workers(); ++rank) {
    const ScheduleStep& now = schedules_[rank].steps[step - 1];
    const std::map<int64_t, BlockId> held = Held(rank, step - 1);
    for (const BlockTransfer& send : now.sends) {
      if (!held.contains(send.offset)) return Wrong("a rank sends a block that it does not hold");
      sent[{rank, send.peer}].push_back(held.at(send.offset));
    }
    if (now.receives.size() != now.arrived.size()) return Wrong("not every receive is a block");
    for (size_t i = 0; i < now.receives.size(); ++i) {
      if (now.receives[i].offset != now.arrived[i].offset) {
        return Wrong("a block arrives elsewhere than it is received");
      }
      awaited[{now.receives[i].peer, rank}].push_back(IdOf(rank, now.arrived[i]));
      received_[rank] += now.receives[i].bytes;
      const RankExchange& exchange = schedules_[rank].exchanges[now.arrived[i].exchange];
      const Block& block = exchange.all.blocks()[now.arrived[i].block];
      if (absl::Status s = CheckNeeded(rank, exchange, block); !s.ok()) return s;
      if (absl::Status s = ComputeBlock(rank, exchange, block); !s.ok()) return s;
    }
  }
  return sent == awaited ? absl::OkStatus() : Wrong("sender and receiver list other blocks");
}

// Every row of the block must be seen by a query of the rank.
absl::Status PlanSimulation::CheckNeeded(int rank, const RankExchange& exchange,
                                         const Block& keys) const {
  const Reach reach = ReachOf(plan_.spec);
  const auto seen = [&](int64_t key) {
    return std::ranges::any_of(exchange.all.blocks(), [&](const Block& queries) {
      return queries.rank == rank && Sees(reach, queries.rows, {.first = key, .count = 1});
    });
  };
  if (!seen(keys.rows.first) || !seen(keys.rows.last())) {
    return Wrong(absl::StrCat("rank ", rank, " receives rows that its queries do not see"));
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::testing
