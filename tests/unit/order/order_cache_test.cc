#include "engine/order/order_cache.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hilbert_ring {
namespace {

JobSpec SpecOf(std::vector<int64_t> lengths, Ordering ordering = {}) {
  JobSpec spec;
  for (const int64_t length : lengths) spec.tokens += length;
  if (lengths.size() > 1) spec.sequence_lengths = std::move(lengths);
  spec.ordering = std::move(ordering);
  return spec;
}

std::shared_ptr<const Permutation> Get(OrderCache& cache, const JobSpec& spec) {
  auto order = cache.Get(spec, {});
  EXPECT_TRUE(order.ok()) << order.status();
  return *order;
}

constexpr int64_t kAmple = 1 << 20;

TEST(OrderCacheTest, JobsOfOneShapeShareAnOrder) {
  OrderCache cache(kAmple);
  const auto order = Get(cache, SpecOf({1000}));
  EXPECT_EQ(cache.hits(), 0);
  EXPECT_GE(cache.resident_bytes(), order->resident_bytes());
  const int64_t bytes = cache.resident_bytes();

  JobSpec same = SpecOf({1000}, {.scope = OrderScope::kKv});
  same.heads = 7;
  same.sequence_lengths = {1000};
  EXPECT_EQ(Get(cache, same), order);
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_EQ(cache.resident_bytes(), bytes);
}

TEST(OrderCacheTest, OtherShapesHaveOtherOrders) {
  OrderCache cache(kAmple);
  const auto order = Get(cache, SpecOf({1024}));
  for (const JobSpec& other :
       {SpecOf({1025}), SpecOf({512, 512}), SpecOf({1024}, {.curve = Curve::kMorton}),
        SpecOf({1024}, {.window = 16}), SpecOf({1024}, {.grid = {16, 64}})}) {
    EXPECT_NE(Get(cache, other), order);
  }
  EXPECT_EQ(cache.hits(), 0);
  EXPECT_EQ(Get(cache, SpecOf({1024})), order);
}

TEST(OrderCacheTest, NeitherIdentitiesNorCoordinatesAreKept) {
  OrderCache cache(kAmple);
  JobSpec plain = SpecOf({10});
  plain.ordering.reset();
  EXPECT_EQ(Get(cache, plain)->resident_bytes(), 0);

  const JobSpec spec = SpecOf({2}, {.coordinate_axes = 2});
  const std::vector<int64_t> forward = {0, 0, 1, 1}, backward = {1, 1, 0, 0};
  std::vector<int64_t> tokens(2);
  (*cache.Get(spec, forward))->Tokens(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{0, 1}));
  (*cache.Get(spec, backward))->Tokens(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(cache.resident_bytes(), 0);
}

TEST(OrderCacheTest, TheLeastRecentlyUsedLeaves) {
  OrderCache one(kAmple);
  Get(one, SpecOf({1000}));
  OrderCache cache(2 * one.resident_bytes() + 100);  // room for two orders of 1000 tokens
  const auto first = Get(cache, SpecOf({1000}));
  const auto second = Get(cache, SpecOf({999}));
  EXPECT_EQ(Get(cache, SpecOf({1000})), first);
  Get(cache, SpecOf({998}));  // evicts 999
  EXPECT_EQ(Get(cache, SpecOf({1000})), first);
  EXPECT_EQ(cache.hits(), 2);
  EXPECT_NE(Get(cache, SpecOf({999})), second);
  EXPECT_EQ(cache.hits(), 2);
  EXPECT_LE(cache.resident_bytes(), 2 * one.resident_bytes() + 100);

  std::vector<int64_t> tokens(999);
  second->Tokens(0, tokens);  // an evicted order still serves its holders
  EXPECT_EQ(tokens[0], 0);
}

TEST(OrderCacheTest, ThreadsShareOneOrder) {
  OrderCache cache(kAmple);
  std::vector<std::shared_ptr<const Permutation>> orders(8);
  {
    std::vector<std::jthread> threads;
    for (auto& order : orders) {
      threads.emplace_back([&cache, &order] { order = Get(cache, SpecOf({5000})); });
    }
  }
  for (const auto& order : orders) EXPECT_EQ(order, orders[0]);
}

}  // namespace
}  // namespace hilbert_ring
