#include "server/rows/held_rows.h"

#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

JobSpec Spec(int64_t tokens, bool causal) {
  JobSpec spec = PlainSpec({.tokens = tokens, .dim = 8});
  spec.causal = causal;  // mirrored: a shard of several ranges
  return spec;
}

Members MakeMembers(int count) {
  Members members;
  for (int i = 0; i < count; ++i) members.push_back(std::make_shared<Member>());
  return members;
}

constexpr TensorKind kRows[] = {TensorKind::kQ, TensorKind::kK, TensorKind::kV};

int64_t MarkOf(TensorKind tensor, int64_t slot) { return slot * 8 + static_cast<int64_t>(tensor); }

HeldShard Filled(const Plan& plan, int rank, SharedMemoryPool& pool) {
  const ShardLayout layout(plan, rank);
  HeldShard shard{.memory = pool.Take(layout.bytes()).value()};
  shard.rows.emplace(shard.memory->data(), layout);
  for (const TensorKind tensor : kRows) {
    for (const ShardRange& range : plan.ShardsOf(tensor).OfRank(rank)) {
      for (int64_t slot = range.begin; slot < range.end; ++slot) {
        const int64_t mark = MarkOf(tensor, slot);
        std::memcpy(shard.rows->Row(tensor, range.LocalRow(slot)), &mark, sizeof(mark));
      }
    }
  }
  return shard;
}

int64_t WrongRows(const Plan& plan, int rank, const HostShard& rows) {
  int64_t wrong = 0;
  for (const TensorKind tensor : kRows) {
    for (const ShardRange& range : plan.ShardsOf(tensor).OfRank(rank)) {
      for (int64_t slot = range.begin; slot < range.end; ++slot) {
        int64_t mark = 0;
        std::memcpy(&mark, rows.Row(tensor, range.LocalRow(slot)), sizeof(mark));
        wrong += mark != MarkOf(tensor, slot);
      }
    }
  }
  return wrong;
}

class HeldRowsTest : public ::testing::Test {
 protected:
  SharedMemoryPool pool_{std::chrono::milliseconds(0)};
};

TEST_F(HeldRowsTest, MoveToTheShardsOfAnyOtherPlan) {
  JobSpec fewer_queries = Spec(5003, true);
  fewer_queries.key_tokens = std::exchange(fewer_queries.tokens, 700);
  for (const JobSpec& spec : {Spec(5003, false), Spec(5003, true), fewer_queries}) {
    for (const auto& [before, after] : {std::pair{3, 2}, {2, 3}, {4, 1}, {1, 4}, {3, 3}}) {
      const Plan old = *MakePlan(spec, before);
      const Plan plan = *MakePlan(spec, after);
      std::vector<HeldShard> shards;
      shards.reserve(static_cast<size_t>(before));
      for (int rank = 0; rank < before; ++rank) shards.push_back(Filled(old, rank, pool_));
      HeldRows held(old, MakeMembers(before), std::move(shards), 0);
      EXPECT_TRUE(held.lost().slots.empty());
      const Members members = MakeMembers(after);
      for (int rank = 0; rank < after; ++rank) {
        const auto shard = held.Carry(plan, rank, *members[rank], 0, pool_);
        ASSERT_TRUE(shard.ok()) << shard.status();
        EXPECT_EQ(WrongRows(plan, rank, *shard->rows), 0);
      }
    }
  }
}

TEST_F(HeldRowsTest, StayWhereTheyAreForTheSameWorkerAlone) {
  const JobSpec spec = Spec(1000, false);
  const Plan plan = *MakePlan(spec, 2);
  const Members members = MakeMembers(2);
  std::vector<HeldShard> shards;
  shards.reserve(2);
  for (int rank = 0; rank < 2; ++rank) shards.push_back(Filled(plan, rank, pool_));
  const std::byte* const first = shards[0].memory->data();
  const std::byte* const second = shards[1].memory->data();
  HeldRows held(plan, members, std::move(shards), 0);
  const auto same = held.Carry(plan, 0, *members[0], 0, pool_);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->memory->data(), first);
  EXPECT_TRUE(same->memory->offer().used());
  EXPECT_EQ(WrongRows(plan, 0, *same->rows), 0);
  // Another lane of the same worker may still compute the previous attempt.
  std::vector<HeldShard> once;
  once.push_back(Filled(plan, 0, pool_));
  once.emplace_back();
  const std::byte* const express = once[0].memory->data();
  HeldRows of_express(plan, members, std::move(once), 1);
  const auto moved = of_express.Carry(plan, 0, *members[0], 2, pool_);
  ASSERT_TRUE(moved.ok());
  EXPECT_NE(moved->memory->data(), express);
  EXPECT_EQ(WrongRows(plan, 0, *moved->rows), 0);
  // A new process replaces the second worker; the lost one may still write to its shard.
  const auto other = held.Carry(plan, 1, *MakeMembers(1)[0], 0, pool_);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->memory->data(), second);
  EXPECT_EQ(WrongRows(plan, 1, *other->rows), 0);
}

TEST_F(HeldRowsTest, AreThereOnceNotTwice) {
  const JobSpec spec = Spec(400'000, false);  // 25 MB a tensor
  const Plan old = *MakePlan(spec, 1);
  const Plan plan = *MakePlan(spec, 2);
  std::vector<HeldShard> shards;
  shards.push_back(Filled(old, 0, pool_));
  const std::shared_ptr<SharedMemory> memory = shards[0].memory;
  HeldRows held(old, MakeMembers(1), std::move(shards), 0);
  const Members members = MakeMembers(2);
  const auto first = held.Carry(plan, 0, *members[0], 0, pool_);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(WrongRows(plan, 0, *first->rows), 0);
  // Rows that have moved leave zeros behind, in whole pages.
  const HostShard before(memory->data(), ShardLayout(old, 0));
  const int64_t wrong = WrongRows(old, 0, before);
  EXPECT_GT(wrong, 3 * 190'000);
  EXPECT_LE(wrong, 3 * 200'001);
}

TEST_F(HeldRowsTest, RowsThatAreNotHeldAreLost) {
  const JobSpec spec = Spec(1000, false);
  const Plan plan = *MakePlan(spec, 4);
  std::vector<HeldShard> shards(4);
  shards[0] = Filled(plan, 0, pool_);
  shards[3] = Filled(plan, 3, pool_);
  HeldRows held(plan, MakeMembers(4), std::move(shards), 0);
  EXPECT_EQ(held.lost().slots, (std::vector<RowSpan>{{250, 500}, {500, 750}}));
  const Plan next = *MakePlan(spec, 2);
  const auto shard = held.Carry(next, 0, *MakeMembers(1)[0], 0, pool_);
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(WrongRows(next, 0, *shard->rows), 3 * 250);
  EXPECT_TRUE(HeldRows().lost().slots.empty());
  EXPECT_TRUE(HeldRows().empty());
}

}  // namespace
}  // namespace hilbert_ring::server
