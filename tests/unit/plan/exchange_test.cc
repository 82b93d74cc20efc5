// Every (query, key) pair of the pattern is computed exactly once, by the rank that owns the query,
// from keys that are there in that step; and no row travels that nobody needs.
#include "engine/plan/exchange.h"

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "engine/plan/plan.h"
#include "engine/plan/rank_schedule.h"
#include "gtest/gtest.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring {
namespace {

using Pair = std::tuple<int, int64_t, int64_t, int64_t>;  // branch, head, query slot, key slot

// Straight from the definition, without phases, progressions or shards. Triangles only where slots
// are positions; a mask by positions is the kernel's.
std::set<Pair> PairsByDefinition(const JobSpec& spec) {
  std::set<Pair> pairs;
  const auto branches = static_cast<int64_t>(spec.branches.size());
  const bool triangle = spec.causal && !spec.ordering;
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
              if (!triangle || k <= q) pairs.insert({static_cast<int>(branch), head, q, k});
            }
          }
        }
      }
      group_begin += group;
    }
  }
  return pairs;
}

class Simulation {
 public:
  explicit Simulation(const Plan& plan) : plan_(plan) {
    for (int rank = 0; rank < plan.shards.workers(); ++rank) {
      schedules_.push_back(MakeRankSchedule(plan, rank));
    }
  }

  void Run() {
    for (const LocalSegments& run : plan_.segments.local) ComputeLocal(run);
    for (int rank = 0; rank < plan_.shards.workers(); ++rank) {
      received_.push_back(0);
      CheckArena(rank);
      for (const RankRing& ring : schedules_[rank].rings) {
        for (const Block& own : ring.ring.blocks()) {
          if (own.rank == rank) ComputeBlock(rank, ring, own);
        }
      }
    }
    for (int64_t step = 1; step <= plan_.costs.steps; ++step) Step(step);
  }

  const std::set<Pair>& pairs() const { return pairs_; }
  int64_t received(int rank) const { return received_[rank]; }
  const std::vector<RankSchedule>& schedules() const { return schedules_; }

 private:
  void Compute(int rank, const Phase& phase, const Progression& queries, const Progression& keys) {
    const bool triangle = plan_.spec.causal && !plan_.spec.ordering;
    for (int64_t i = 0; i < queries.count; ++i) {
      const int64_t q = queries.first + i * queries.step;
      ASSERT_EQ(plan_.shards.Find(q).rank, rank);
      for (int64_t j = 0; j < keys.count; ++j) {
        const int64_t k = keys.first + j * keys.step;
        if (triangle && k > q) continue;
        for (int64_t head = phase.head_begin; head < phase.head_end; ++head) {
          ASSERT_TRUE(pairs_.insert({phase.branch, head, q, k}).second) << "computed twice";
        }
      }
    }
  }

  void ComputeLocal(const LocalSegments& run) {
    for (const Phase& phase : plan_.phases) {
      if (phase.branch != run.branch) continue;
      for (int64_t i = 0; i < run.count; ++i) {
        const int64_t begin = run.begin + i * run.length;
        const Progression rows =
            Selected(begin, phase.offset, plan_.spec.branches[run.branch].dilation, begin,
                     begin + run.length);
        if (rows.count == 0) continue;
        // One range holds the segment, so the rows are one strided view.
        ASSERT_EQ(&plan_.shards.Find(begin), &plan_.shards.Find(begin + run.length - 1));
        Compute(run.rank, phase, rows, rows);
      }
    }
  }

  void ComputeBlock(int rank, const RankRing& ring, const Block& keys) {
    for (const Block& queries : ring.ring.blocks()) {
      if (queries.rank == rank) Compute(rank, plan_.phases[ring.phase], queries.rows, keys.rows);
    }
  }

  // Blocks of two steps that follow each other do not overlap in the arena.
  void CheckArena(int rank) {
    const RankSchedule& schedule = schedules_[rank];
    EXPECT_EQ(schedule.arena_bytes, plan_.costs.workers[rank].exchange_buffer_bytes);
    std::vector<ArenaBlock> before = schedule.packed;
    for (const ScheduleStep& step : schedule.steps) {
      std::vector<ArenaBlock> both = before;
      both.insert(both.end(), step.arrived.begin(), step.arrived.end());
      std::sort(both.begin(), both.end(),
                [](const ArenaBlock& a, const ArenaBlock& b) { return a.offset < b.offset; });
      int64_t free = 0;
      for (const ArenaBlock& block : both) {
        EXPECT_GE(block.offset, free);
        free = block.offset + block.bytes;
      }
      EXPECT_LE(free, schedule.arena_bytes);
      before = step.arrived;
    }
  }

  using BlockId = std::tuple<int, int, int64_t>;  // segment, phase, first slot

  BlockId IdOf(int rank, const ArenaBlock& block) const {
    const RankRing& ring = schedules_[rank].rings[block.ring];
    return {ring.segment, ring.phase, ring.ring.blocks()[block.block].rows.first};
  }

  // What a rank holds at an offset of the arena after a step.
  std::map<int64_t, BlockId> Held(int rank, int64_t step) const {
    std::map<int64_t, BlockId> held;
    const RankSchedule& schedule = schedules_[rank];
    for (const ArenaBlock& block : step == 0 ? schedule.packed : schedule.steps[step - 1].arrived) {
      held[block.offset] = IdOf(rank, block);
    }
    return held;
  }

  void Step(int64_t step) {
    // Lists of blocks by (from, to), in the order in which each side lists them.
    std::map<std::pair<int, int>, std::vector<BlockId>> sent, awaited;
    for (int rank = 0; rank < plan_.shards.workers(); ++rank) {
      const ScheduleStep& now = schedules_[rank].steps[step - 1];
      const std::map<int64_t, BlockId> held = Held(rank, step - 1);
      for (const BlockTransfer& send : now.sends) {
        ASSERT_TRUE(held.contains(send.offset)) << "sends what is not there";
        sent[{rank, send.peer}].push_back(held.at(send.offset));
      }
      ASSERT_EQ(now.receives.size(), now.arrived.size());
      for (size_t i = 0; i < now.receives.size(); ++i) {
        EXPECT_EQ(now.receives[i].offset, now.arrived[i].offset);
        awaited[{now.receives[i].peer, rank}].push_back(IdOf(rank, now.arrived[i]));
        received_[rank] += now.receives[i].bytes;
        const RankRing& ring = schedules_[rank].rings[now.arrived[i].ring];
        CheckNeeded(rank, ring, ring.ring.blocks()[now.arrived[i].block]);
        ComputeBlock(rank, ring, ring.ring.blocks()[now.arrived[i].block]);
      }
    }
    EXPECT_EQ(sent, awaited);
  }

  // Some query of the rank sees every row of the block.
  void CheckNeeded(int rank, const RankRing& ring, const Block& keys) {
    int64_t last_query = -1;
    for (const Block& queries : ring.ring.blocks()) {
      if (queries.rank == rank) last_query = std::max(last_query, queries.rows.last());
    }
    ASSERT_GE(last_query, 0);
    if (plan_.spec.causal && !plan_.spec.ordering) {
      EXPECT_GE(last_query, keys.rows.last());
    }
  }

  const Plan& plan_;
  std::vector<RankSchedule> schedules_;
  std::set<Pair> pairs_;
  std::vector<int64_t> received_;
};

TEST(Exchange, EveryPairOnceAndNoRowTooMany) {
  std::mt19937_64 random(20240);
  int exchanging = 0, mirrored = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const JobSpec spec = testing::RandomSpec(random, {.max_tokens = 90, .max_heads = 6});
    ASSERT_TRUE(Validate(spec).ok()) << Validate(spec);
    const int workers = 1 + static_cast<int>(random() % 7);
    const auto plan = MakePlan(spec, workers);
    ASSERT_TRUE(plan.ok()) << plan.status();
    Simulation simulation(*plan);
    simulation.Run();
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(simulation.pairs(), PairsByDefinition(spec)) << "trial " << trial;
    int64_t received = 0;
    for (int rank = 0; rank < workers; ++rank) {
      EXPECT_EQ(simulation.received(rank), plan->costs.workers[rank].bytes_received);
      received += simulation.received(rank);
    }
    EXPECT_EQ(received, plan->costs.bytes_exchanged);
    EXPECT_LE(plan->costs.bytes_exchanged_union, plan->costs.bytes_exchanged);
    if (!spec.causal || !spec.ordering) {
      EXPECT_EQ(plan->costs.flops, 2.0 * static_cast<double>(spec.head_dim + spec.value_dim) *
                                       static_cast<double>(simulation.pairs().size()));
    }
    exchanging += plan->costs.steps > 0;
    mirrored += plan->mirrored;
  }
  // The sample holds what it is meant to hold.
  EXPECT_GT(exchanging, 100);
  EXPECT_GT(mirrored, 10);
}

TEST(Exchange, UnionCountsSharedRowsOnce) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const JobSpec spec = testing::RandomSpec(random, {.max_tokens = 90, .max_heads = 6});
    const int workers = 2 + static_cast<int>(random() % 4);
    const auto plan = MakePlan(spec, workers);
    ASSERT_TRUE(plan.ok());
    std::set<std::tuple<int, int64_t, int64_t>> rows;  // rank, kv head, slot
    std::set<std::pair<int, int64_t>> positions;
    for (int rank = 0; rank < workers; ++rank) {
      for (const RankRing& ring : MakeRankSchedule(*plan, rank).rings) {
        const Phase& phase = plan->phases[ring.phase];
        for (const Block& block : ring.ring.blocks()) {
          if (block.rank == rank || !ring.ring.Needs(rank, block)) continue;
          for (int64_t i = 0; i < block.rows.count; ++i) {
            const int64_t slot = block.rows.first + i * block.rows.step;
            positions.insert({rank, slot});
            for (int64_t g = phase.kv_begin; g < phase.kv_end; ++g) rows.insert({rank, g, slot});
          }
        }
      }
    }
    const int64_t position_bytes =
        MaskNeedsPositions(spec) ? 8 * static_cast<int64_t>(positions.size()) : 0;
    EXPECT_EQ(plan->costs.bytes_exchanged_union, static_cast<int64_t>(rows.size()) *
                                                         (spec.head_dim + spec.value_dim) *
                                                         ElementBytes(spec.dtype) +
                                                     position_bytes)
        << "trial " << trial;
  }
}

TEST(Route, GoesUpForSharedKeysAndDownForMirroredEnds) {
  JobSpec spec;
  spec.tokens = 4096;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = spec.value_dim = 8;
  spec.branches = {{4096, 1}};
  spec.causal = true;
  const auto plan = MakePlan(spec, 4);
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan->mirrored);
  const PhaseRing ring(spec, plan->segments.spanning.at(0), plan->phases.at(0));
  ASSERT_EQ(ring.blocks().size(), 7u);  // the last rank's two ranges touch
  EXPECT_EQ(ring.Route(ring.blocks()[0]), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(ring.Route(ring.blocks()[1]), (std::vector<int>{2, 3, 0}));
  EXPECT_EQ(ring.Route(ring.blocks()[4]), (std::vector<int>{1, 0}));
  EXPECT_EQ(ring.Route(ring.blocks()[6]), (std::vector<int>{}));
}

}  // namespace
}  // namespace hilbert_ring
